"""The model interface: a module for one member, its sites, the frozen spec that builds it, and their registration."""

import inspect
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from anchorlab.axes import TaskShape
from anchorlab.models.gpu import check_target
from anchorlab.models.sites import Positions, Sites, Tap, identity_tap
from anchorlab.spec import Spec, check_known, register_kind, spec_of

Weights = Mapping[str, Shaped[Tensor, "..."]]
"""One member's weights by name, or some of them; each has a shape of its own."""

Draw = Callable[[nn.Module, torch.Generator], None]
"""A function that draws every weight of a module from a generator."""


class Model(nn.Module):
    """A module for one member, which visits its sites through `tap`.

    Subclasses set `sites`, and `_draw`, which draws their weights.

    A user's own module need not inherit from this class: any module whose `forward(inputs)` returns
    `[batch position output]` can be trained; `positions` and `tap` are passed if `forward` takes them.
    """

    sites: Sites
    _draw: Draw
    predicts_last_alone: ClassVar[bool] = False
    """Whether the model makes one prediction per sequence, and so fits only tasks that score just the last position."""
    positions_narrow_sites: ClassVar[bool] = True
    """Whether given `positions` also narrow some sites to these positions; otherwise they narrow only the logits."""

    @abstractmethod
    def forward(
        self, inputs: Shaped[Tensor, "batch position *feature"], positions: Positions = None, tap: Tap = identity_tap
    ) -> Float[Tensor, "batch scored output"]:
        """Return predictions at `positions` (`[scored]` or `[batch scored]`), or everywhere when None."""

    @contextmanager
    def hooks(
        self, functions: Mapping[str, Callable[[Shaped[Tensor, "..."]], Shaped[Tensor, "..."] | None]]
    ) -> Iterator[Self]:
        """Within `with`, call functions with the values at some sites; a tensor that is returned replaces the value.

            with run.model(0).hooks({"blocks.0.attn.hook_pattern": print}) as model:
                model(tokens)

        For quick looks; `al.look` also checks that a site was visited and that an intervention changed something.

        Errors: `SpecError` for a site that the model does not have.
        """
        for site in functions:
            check_known("hooks", site, self.sites, "site")

        def tapped(module: nn.Module, given: Any, named: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
            before = named.get("tap", identity_tap)  # of the caller, or of hooks around these

            def tap(site: str, value: Tensor) -> Tensor:
                value = before(site, value)
                found = functions[site](value) if site in functions else None
                return value if found is None else found

            return given, {**named, "tap": tap}

        handle = self.register_forward_pre_hook(tapped, with_kwargs=True)
        try:
            yield self
        finally:
            handle.remove()

    def to(self, *given: Any, **named: Any) -> "Model":
        """Move or convert the weights, as in any module. Errors: `SpecError` for a device that does not exist."""
        check_target(given, named)
        return super().to(*given, **named)

    def initialise(self, generator: torch.Generator) -> None:
        """Draw every weight again, from `generator` only."""
        with torch.no_grad():
            self._draw(self, generator)


class ModelSpec(Spec):
    """The frozen specification of an architecture."""

    kind: str

    registry: ClassVar[dict[str, type["ModelSpec"]]] = {}

    @abstractmethod
    def build(self, shape: TaskShape) -> nn.Module:
        """Build a module for a task's shape; `initialise` draws its weights later.

        Errors: `SpecError` if the spec does not fit the shape.
        """


def gather_positions(
    value: Shaped[Tensor, "batch position ..."], positions: Positions
) -> Shaped[Tensor, "batch scored ..."]:
    """Return the rows of `value` at `positions` (`[scored]` or `[batch scored]`), or all rows when None."""
    if positions is None:
        return value
    if positions.ndim == 1:
        return value.index_select(1, positions)
    index = positions.reshape(*positions.shape, *(1,) * (value.ndim - 2)).expand(-1, -1, *value.shape[2:])
    return value.gather(1, index)


def register_model(kind: str) -> Callable[[type[ModelSpec]], type[ModelSpec]]:
    """Register a model spec under its kind, so that runs can be rebuilt. Errors: `ValueError` for a duplicate kind."""
    return lambda spec: register_kind(kind, spec, ModelSpec.registry, "model")


def register_module(kind: str) -> Callable[[Callable[..., nn.Module]], type[ModelSpec]]:
    """Turn a function `factory(shape, ...) -> nn.Module` into a model spec, registered as `kind`.

    Any module that maps inputs to `[batch position output]` is accepted. The function's further arguments become the
    fields of the spec, and need defaults, which give their types if they are not annotated:

        @al.register_module("mean-pool")
        def mean_pool(shape, width: int = 64):
            return MeanPool(shape.input_size, width, shape.output_size)

        al.train("anchor/identity", model=mean_pool(width=32))

    Errors: `TypeError` for an argument without a default; `ValueError` for a kind that is already registered.
    """
    return lambda factory: register_model(kind)(spec_of(factory, kind, ModelSpec, "build", 1))


def predict(
    module: nn.Module,
    inputs: Shaped[Tensor, "batch position *feature"],
    positions: Positions = None,
    weights: Weights | None = None,
    **others: Any,
) -> Float[Tensor, "batch scored output"]:
    """Return any module's predictions at `positions`, or everywhere when None.

    Args:
        module: computes only `positions` if its `forward` takes them; otherwise they are selected from its full output
        inputs: `[batch position]` token ids, or `[batch position feature]` vectors
        positions: `[scored]` or `[batch scored]`
        weights: used in place of the module's own, by name
        others: further arguments of the module's `forward`
    """
    takes = accepts(module, "positions")
    arguments = {**others, "positions": positions} if takes else others
    if weights is None:
        output = module(inputs, **arguments)
    else:
        output = torch.func.functional_call(module, dict(weights), (inputs,), arguments)
    return output if takes else gather_positions(output, positions)


def accepts(module: nn.Module, argument: str) -> bool:
    """Return whether a module's `forward` takes an argument of this name."""
    return argument in inspect.signature(module.forward).parameters
