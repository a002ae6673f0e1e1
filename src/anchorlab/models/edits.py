"""Weight edits: parameters to parameters, as data; training never sees them."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Annotated, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.spec import Spec, unknown_name

Decompose = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]


class Truncate(Spec):
    """Replaces a matrix by its best approximation of lower rank, from its singular values (LASER).

    Either `fraction`, which keeps rank floor(fraction x min(d_in, d_out)), with 0 dropping the matrix and 1 leaving it
    bit for bit as it is, or `rank` itself. Source: truncated weights, section 2.2.
    """

    kind: Literal["truncate"] = "truncate"
    weight: str
    fraction: float | None = Field(default=None, ge=0, le=1)
    rank: int | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _one_measure(self) -> "Truncate":
        if (self.fraction is None) == (self.rank is None):
            raise SpecError("fraction", "give either fraction or rank", "0.5 keeps half of the full rank")
        return self

    def names(self, known: Iterable[str]) -> tuple[str, ...]:
        """The weights this edit changes; `SpecError` with the nearest name for one that is not there."""
        names = list(known)
        if self.weight not in names:
            raise unknown_name("weight", self.weight, names, "weight")
        return (self.weight,)

    def check(self, weights: Mapping[str, Tensor]) -> None:
        """`SpecError` unless the weight is a matrix, with a rank that is not below the one asked for."""
        (name,) = self.names(weights)
        self._kept(name, weights[name].shape)

    def apply(self, name: str, value: Tensor, decompose: Decompose) -> Tensor:
        """The truncated matrices, each `[input output]`, of all members, `[member input output]`."""
        rank = self._kept(name, value.shape[1:])
        if rank == min(value.shape[1:]):
            return value
        if rank == 0:
            return torch.zeros_like(value)
        left, singular, right = decompose(value)
        return ((left[..., :rank] * singular[..., None, :rank]) @ right[..., :rank, :]).to(value.dtype)

    def _kept(self, name: str, shape: Sequence[int]) -> int:
        if len(shape) != 2:
            raise SpecError("weight", f"{name!r} is no matrix", "name one that is")
        full = min(shape)
        if self.rank is not None and self.rank > full:
            raise SpecError("rank", f"{self.rank} is above the full rank of {name!r}, {full}", f"use at most {full}")
        if self.rank is not None:
            return self.rank
        return math.floor((self.fraction or 0.0) * full + 1e-9)  # 0.29 x 100 is 28.999999999999996 in floating point


class Remove(Spec):
    """Sets a weight to zero, or all maps below a prefix: `blocks.1.mlp` drops the whole feed-forward layer.

    Biases go too, so that the removed layer writes nothing. Layer norms below the prefix stay: in a post-layer-norm
    block the stream itself passes through them.
    """

    kind: Literal["remove"] = "remove"
    weight: str

    def names(self, known: Iterable[str]) -> tuple[str, ...]:
        """The weights this edit changes; `SpecError` where nothing (with the nearest name) or only a norm is meant."""
        names = list(known)
        found = [name for name in names if name == self.weight or name.startswith(f"{self.weight}.")]
        if not found:
            parts = [name.split(".") for name in names]
            prefixes = {".".join(part[:end]) for part in parts for end in range(1, len(part) + 1)}
            raise unknown_name("weight", self.weight, prefixes, "weight")
        maps = tuple(name for name in found if not _of_a_norm(name))
        if not maps:
            raise SpecError("weight", f"{self.weight!r} is a layer norm, which adds nothing to remove", "name a map")
        return maps

    def check(self, weights: Mapping[str, Tensor]) -> None:
        """`SpecError` where nothing is called so."""
        self.names(weights)

    def apply(self, name: str, value: Tensor, decompose: Decompose) -> Tensor:
        """Zeros of the weight's shape."""
        return torch.zeros_like(value)


Edit = Annotated[Truncate | Remove, Field(discriminator="kind")]


def apply_edits(weights: Mapping[str, Tensor], edits: Sequence[Truncate | Remove]) -> dict[str, Tensor]:
    """Stacked weights, each `[member ...]`, after edits in their order; what is not edited is shared, not copied.

    Errors: `SpecError` for a weight that is not there, is no matrix, or has a lower rank than asked for.
    """
    return apply_each(weights, [edits])[0]


def apply_each(
    weights: Mapping[str, Tensor], variants: Sequence[Sequence[Truncate | Remove]]
) -> list[dict[str, Tensor]]:
    """The weights after each of several lists of edits; a matrix is decomposed once for all ranks asked of it.

    Errors: as `apply_edits`.
    """
    decompose = cache(_decompose)  # a tensor is its own key, by identity
    results = []
    for edits in variants:
        edited = dict(weights)
        for edit in edits:
            for name in edit.names(edited):
                edited[name] = edit.apply(name, edited[name], decompose)
        results.append(edited)
    return results


def check_edits(edits: Sequence[Truncate | Remove], weights: Mapping[str, Tensor], at: str) -> None:
    """Finds out before any training whether edits fit one member's `weights`; a `SpecError` below `at` if not."""
    for index, edit in enumerate(edits):
        try:
            edit.check(weights)
        except SpecError as error:
            raise SpecError(f"{at}.{index}.{error.field}", error.problem, error.remedy) from None


def _decompose(value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    exact = value.detach() if value.dtype == torch.float64 else value.detach().float()
    left, singular, right = torch.linalg.svd(exact, full_matrices=False)
    return left, singular, right


def _of_a_norm(name: str) -> bool:
    return name.rpartition(".")[0].rpartition(".")[2].startswith("ln")
