"""The model contract: a plain module for one member, its sites, and the frozen spec that builds it."""

import inspect
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from anchorlab.axes import TaskShape
from anchorlab.models.sites import Sites, Tap, identity_tap
from anchorlab.spec import Spec

Draw = Callable[[nn.Module, torch.Generator], None]
"""Fills every weight of a module from a generator."""


class Model(nn.Module):
    """One member: a module that visits its sites through `tap` and computes its last layer only where asked.

    Subclasses set `sites`, and `_draw`, by which their weights are drawn.

    A user's own module need not inherit from this: any `forward(inputs)` that returns `[batch position output]` can be
    trained, and one that also takes `positions` or `tap` gets them.
    """

    sites: Sites
    _draw: Draw
    predicts_last_alone: ClassVar[bool] = False
    """Whether it makes one prediction for a whole sequence, and so serves only tasks that ask at the last position."""

    @abstractmethod
    def forward(
        self,
        inputs: Tensor,
        positions: Int[Tensor, "*batch scored"] | None = None,
        tap: Tap = identity_tap,
    ) -> Float[Tensor, "batch scored output"]:
        """Predictions at `positions` (`[scored]` for all sequences or `[batch scored]`), or everywhere when None."""

    def initialise(self, generator: torch.Generator) -> None:
        """Draws every weight afresh from `generator`, and nothing from anywhere else."""
        with torch.no_grad():
            self._draw(self, generator)


class ModelSpec(Spec):
    """The frozen description of an architecture; `build` makes one member with undrawn weights."""

    kind: str

    registry: ClassVar[dict[str, type["ModelSpec"]]] = {}

    @abstractmethod
    def build(self, shape: TaskShape) -> nn.Module:
        """A module that fits a task's shape; its weights are drawn later by `initialise`.

        Errors: `SpecError` where the spec does not fit the shape.
        """


def gather_positions(value: Tensor, positions: Int[Tensor, "*batch scored"] | None) -> Tensor:
    """The rows of `value` `[batch position ...]` at `positions`, `[batch scored ...]`; all rows for None."""
    if positions is None:
        return value
    if positions.ndim == 1:
        return value.index_select(1, positions)
    index = positions.reshape(*positions.shape, *(1,) * (value.ndim - 2)).expand(-1, -1, *value.shape[2:])
    return value.gather(1, index)


def register_model(kind: str) -> Callable[[type[ModelSpec]], type[ModelSpec]]:
    """Registers a model spec under its kind, so that runs that name it can be rebuilt; a duplicate kind raises."""

    def register(spec: type[ModelSpec]) -> type[ModelSpec]:
        known = ModelSpec.registry.get(kind)
        if known is not None and (known.__module__, known.__qualname__) != (spec.__module__, spec.__qualname__):
            raise ValueError(f"model kind {kind!r} is already registered by {known.__module__}")
        ModelSpec.registry[kind] = spec
        return spec

    return register


def predict(
    module: nn.Module,
    inputs: Tensor,
    positions: Int[Tensor, "*batch scored"] | None = None,
    weights: Mapping[str, Tensor] | None = None,
    **others: Any,
) -> Float[Tensor, "batch scored output"]:
    """A module's predictions at `positions`, with other `weights` if given; works for any module.

    A module that takes `positions` computes only these; of any other the rows are gathered from the full output.
    `others` are handed on to the module, which must take them.
    """
    takes = accepts(module, "positions")
    arguments = {**others, "positions": positions} if takes else others
    if weights is None:
        output = module(inputs, **arguments)
    else:
        output = torch.func.functional_call(module, dict(weights), (inputs,), arguments)
    return output if takes else gather_positions(output, positions)


def accepts(module: nn.Module, argument: str) -> bool:
    """Whether a module's `forward` takes an argument of this name."""
    return argument in inspect.signature(module.forward).parameters
