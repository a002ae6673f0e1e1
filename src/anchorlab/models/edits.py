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

Decompose = Callable[..., tuple[Tensor, Tensor, Tensor]]
"""The singular values of a stack of matrices, or of the product of two; asked twice, it answers from memory."""


class Truncate(Spec):
    """Replaces a matrix by its best approximation of lower rank, from its singular values (LASER).

    Either `fraction`, which keeps rank floor(fraction x min(d_in, d_out)), with 0 dropping the matrix and 1 leaving it
    bit for bit as it is, or `rank` itself. `weight` names a matrix, or the product of two,
    `blocks.0.attn.W_V @ blocks.0.attn.W_O`: both then become factors of the product's best approximation.
    Source: truncated weights, section 2.2.
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
        known, parts = list(known), [part.strip() for part in self.weight.split("@")]
        for part in parts:
            if part not in known:
                raise unknown_name("weight", part, known, "weight")
        if len(set(parts)) < len(parts) or len(parts) > 2:
            raise SpecError(
                "weight", f"{self.weight!r} is no product of two matrices", "name one, or two with @ between"
            )
        return tuple(parts)

    def check(self, weights: Mapping[str, Tensor]) -> None:
        """`SpecError` unless matrices are named that fit, with a rank that is not below the one asked for."""
        self.rank_left(weights)

    def rank_left(self, weights: Mapping[str, Tensor]) -> int:
        """The rank that is left of one member's weights. Errors: as `check`."""
        return self._kept([weights[name].shape for name in self.names(weights)])

    def apply(self, weights: Mapping[str, Tensor], decompose: Decompose) -> dict[str, Tensor]:
        """What changes: the truncated matrices, each `[member input output]`."""
        names = self.names(weights)
        factors = [weights[name] for name in names]
        rank = self._kept([factor.shape[1:] for factor in factors])
        if rank >= min(size for factor in factors for size in factor.shape[1:]):
            return {}
        changed = [torch.zeros_like(factor) for factor in factors]
        if rank:
            left, singular, right = decompose(*factors)
            left, right = left[..., :rank] * singular[..., None, :rank], right[..., :rank, :]
            if len(factors) == 1:
                changed = [(left @ right).to(factors[0].dtype)]
            else:
                changed[0][..., :rank], changed[1][..., :rank, :] = left, right
        return dict(zip(names, changed, strict=True))

    def _kept(self, shapes: Sequence[Sequence[int]]) -> int:
        """The rank that is left."""
        if any(len(shape) != 2 for shape in shapes):
            raise SpecError("weight", f"{self.weight!r} is no matrix", "name one that is")
        if len(shapes) == 2 and shapes[0][1] != shapes[1][0]:
            raise SpecError("weight", f"{self.weight!r} do not fit together", "name the factors in their order")
        full = min(shapes[0][0], shapes[-1][1])
        if self.rank is None:
            return math.floor((self.fraction or 0.0) * full + 1e-9)  # 0.29 x 100 is 28.999999999999996
        if self.rank > full:
            raise SpecError(
                "rank", f"{self.rank} is above the full rank of {self.weight!r}, {full}", f"use at most {full}"
            )
        return self.rank


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

    def apply(self, weights: Mapping[str, Tensor], decompose: Decompose) -> dict[str, Tensor]:
        """What changes: zeros of each weight's shape."""
        return {name: torch.zeros_like(weights[name]) for name in self.names(weights)}


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
            edited |= edit.apply(edited, decompose)
        results.append(edited)
    return results


def check_edits(edits: Sequence[Truncate | Remove], weights: Mapping[str, Tensor], at: str) -> None:
    """Finds out before any training whether edits fit one member's `weights`; a `SpecError` below `at` if not."""
    for index, edit in enumerate(edits):
        try:
            edit.check(weights)
        except SpecError as error:
            raise SpecError(f"{at}.{index}.{error.field}", error.problem, error.remedy) from None


def _decompose(*factors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    exact = [factor.detach() if factor.dtype == torch.float64 else factor.detach().float() for factor in factors]
    whole = exact[0] if len(exact) == 1 else exact[0] @ exact[1]
    # a member that has diverged has no singular values; it gets NaN, and its neighbours get theirs
    finite = whole.isfinite().all(dim=-1).all(dim=-1)[:, None, None]
    left, singular, right = torch.linalg.svd(torch.where(finite, whole, 0.0), full_matrices=False)
    left, right = (torch.where(finite, factor, torch.nan) for factor in (left, right))
    return left, torch.where(finite[..., 0], singular, torch.nan), right


def _of_a_norm(name: str) -> bool:
    return name.rpartition(".")[0].rpartition(".")[2].startswith("ln")
