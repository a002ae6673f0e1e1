"""Weight edits as data: each maps the weights to edited copies and does not affect training."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Annotated, ClassVar, Literal

import torch
from jaxtyping import Float, Shaped
from pydantic import Field, model_validator
from torch import Tensor

from anchorlab.errors import SpecError, below
from anchorlab.models.model import Weights
from anchorlab.spec import Spec, check_known, unknown_name

BLOCK = 32
"""The number of entries, along the input, that share a scale when a matrix is quantised."""

Stacked = Mapping[str, Shaped[Tensor, "member ..."]]
"""The weights of all members by name."""

SVD = tuple[Float[Tensor, "member input rank"], Float[Tensor, "member rank"], Float[Tensor, "member rank output"]]
Decompose = Callable[..., SVD]
"""A cached singular value decomposition of stacked matrices, or of stacked products of two matrices."""


def checked_fractions(fractions: Iterable[float]) -> tuple[float, ...]:
    """Return the fractions of a rank to keep, sorted, without 1. Errors: `SpecError` for none, or any outside 0..1."""
    tried = tuple(sorted({float(fraction) for fraction in fractions if fraction != 1}))
    if not tried or not 0 <= tried[0] <= tried[-1] < 1:
        raise SpecError("fractions", f"{list(fractions)} are not fractions of the rank", "give some from 0 to below 1")
    return tried


class Truncate(Spec):
    """Replace a matrix by its best approximation of lower rank, from its singular values (LASER).

    Give either `rank`, or `fraction`, which keeps rank floor(fraction x min(d_in, d_out)): 0 drops the matrix, and 1
    leaves it unchanged bit for bit. `skip` drops that many of the largest components, so that the kept ones are the
    next largest, or all the smallest. `weight` names a matrix, or a product of two matrices such as
    `blocks.0.attn.W_V @ blocks.0.attn.W_O`; both then become factors of the product's best approximation.
    Source: truncated weights, section 2.2.
    """

    later: ClassVar[frozenset[str]] = frozenset({"skip"})

    kind: Literal["truncate"] = "truncate"
    weight: str
    fraction: float | None = Field(default=None, ge=0, le=1)
    rank: int | None = Field(default=None, ge=0)
    skip: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _one_measure(self) -> "Truncate":
        if (self.fraction is None) == (self.rank is None):
            raise SpecError("fraction", "give either fraction or rank", "0.5 keeps half of the full rank")
        return self

    def names(self, known: Iterable[str]) -> tuple[str, ...]:
        """Return the names of the weights that change. Errors: `SpecError` for an unknown name, with the nearest."""
        known, parts = list(known), [part.strip() for part in self.weight.split("@")]
        for part in parts:
            check_known("weight", part, known, "weight")
        if len(set(parts)) < len(parts) or len(parts) > 2:
            problem = f"{self.weight!r} is not a product of two matrices"
            raise SpecError("weight", problem, "name one, or two with @ between")
        return tuple(parts)

    def check(self, weights: Weights) -> None:
        """Raise `SpecError` unless `weight` names matrices of matching shapes with at least the given rank."""
        self.rank_left(weights)

    def rank_left(self, weights: Weights) -> int:
        """Return the rank after truncation, given one member's weights. Errors: as `check`."""
        return self._kept([weights[name].shape for name in self.names(weights)])

    def apply(self, weights: Stacked, decompose: Decompose) -> dict[str, Shaped[Tensor, "member ..."]]:
        """Return the truncated matrices by name, each `[member input output]`; no entries if the rank stays full."""
        names = self.names(weights)
        factors = [weights[name] for name in names]
        # the rank of a product is at most the size between its factors
        most = min(size for factor in factors for size in factor.shape[1:])
        rank = min(self._kept([factor.shape[1:] for factor in factors]), most)
        if not self.skip and rank == most:
            return {}
        changed = [torch.zeros_like(factor) for factor in factors]
        if rank:
            kept, (left, singular, right) = slice(self.skip, self.skip + rank), decompose(*factors)
            left, right = left[..., kept] * singular[..., None, kept], right[..., kept, :]
            if len(factors) == 1:
                changed = [(left @ right).to(factors[0].dtype)]
            else:
                changed[0][..., :rank], changed[1][..., :rank, :] = left, right
        return dict(zip(names, changed, strict=True))

    def _kept(self, shapes: Sequence[Sequence[int]]) -> int:
        """Return the rank after truncating matrices of these shapes."""
        if any(len(shape) != 2 for shape in shapes):
            raise SpecError("weight", f"{self.weight!r} is not a matrix", "name a matrix")
        if len(shapes) == 2 and shapes[0][1] != shapes[1][0]:
            raise SpecError("weight", f"{self.weight!r} do not fit together", "name the factors in their order")
        full = min(shapes[0][0], shapes[-1][1])
        # 0.29 x 100 is 28.999999999999996
        rank = math.floor((self.fraction or 0.0) * full + 1e-9) if self.rank is None else self.rank
        if rank + self.skip > full:
            behind, most = f" behind {self.skip}" if self.skip else "", max(0, full - self.skip)
            problem = f"{rank}{behind} is above the full rank of {self.weight!r}, {full}"
            raise SpecError("rank", problem, f"use at most {most}")
        return rank


class Remove(Spec):
    """Set a weight to zero, or all weights below a prefix: `blocks.1.mlp` removes the whole feed-forward layer.

    Biases are removed too, so that the layer writes nothing. Layer norms stay: in a post-layer-norm block the stream
    itself passes through them.
    """

    kind: Literal["remove"] = "remove"
    weight: str

    def names(self, known: Iterable[str]) -> tuple[str, ...]:
        """Return the names of the weights that change.

        Errors: `SpecError` for an unknown name (with the nearest one), and for a layer norm.
        """
        names = list(known)
        found = [name for name in names if name == self.weight or name.startswith(f"{self.weight}.")]
        if not found:
            parts = [name.split(".") for name in names]
            prefixes = {".".join(part[:end]) for part in parts for end in range(1, len(part) + 1)}
            raise unknown_name("weight", self.weight, prefixes, "weight")
        maps = tuple(name for name in found if not name.rpartition(".")[0].rpartition(".")[2].startswith("ln"))
        if not maps:
            raise SpecError("weight", f"{self.weight!r} is a layer norm, which adds nothing to remove", "name a map")
        return maps

    def check(self, weights: Weights) -> None:
        """Raise `SpecError` for an unknown name."""
        self.names(weights)

    def apply(self, weights: Stacked, decompose: Decompose) -> dict[str, Shaped[Tensor, "member ..."]]:
        """Return zeros for each removed weight by name, each `[member ...]`."""
        return {name: torch.zeros_like(weights[name]) for name in self.names(weights)}


class Quantise(Spec):
    """Round a matrix, or all matrices below a prefix, to few bits: `blocks` rounds every matrix of every block.

    As in GGUF's Q8_0 and Q4_0, 32 entries along the input share one scale of 16 bits, and each entry becomes the
    nearest multiple of the scale. With 8 bits the scale is the largest magnitude / 127, and multiples range from -127
    to 127; with 4 bits the scale is the entry with the largest magnitude / -8, and multiples range from -8 to 7. Biases
    and layer norms stay.
    """

    kind: Literal["quantise"] = "quantise"
    weight: str
    bits: Literal[4, 8]

    def names(self, known: Iterable[str]) -> tuple[str, ...]:
        """Return the names of the weights below the prefix, except layer norms. Errors: as `Remove.names`."""
        return Remove(weight=self.weight).names(known)

    def check(self, weights: Weights) -> None:
        """Raise `SpecError` for an unknown name, no matrix below it, or a number of inputs not a multiple of 32."""
        self._matrices({name: weights[name].unsqueeze(0) for name in self.names(weights)})

    def apply(self, weights: Stacked, decompose: Decompose) -> dict[str, Shaped[Tensor, "member ..."]]:
        """Return the rounded matrices by name, each `[member input output]`. Errors: as `check`."""
        return {name: round_blocks(value, self.bits) for name, value in self._matrices(weights).items()}

    def _matrices(self, weights: Stacked) -> dict[str, Shaped[Tensor, "member input output"]]:
        found = {name: weights[name] for name in self.names(weights) if weights[name].ndim == 3}
        if not found:
            raise SpecError("weight", f"{self.weight!r} holds no matrix", "name a matrix")
        for name, value in found.items():
            if value.shape[-2] % BLOCK:
                raise SpecError("weight", f"{name!r} has {value.shape[-2]} inputs", f"quantise multiples of {BLOCK}")
        return found


def round_blocks(matrix: Float[Tensor, "*lead input output"], bits: int) -> Float[Tensor, "*lead input output"]:
    """Return matrices `[... input output]` rounded to 8 or 4 bits in blocks of 32 inputs (see `Quantise`)."""
    blocks = torch.unflatten(matrix.detach().float(), -2, (-1, BLOCK))
    largest = blocks.abs().max(dim=-2, keepdim=True)
    if bits == 8:
        scale, low, high = largest.values / 127, -127, 127
    else:
        scale, low, high = blocks.gather(-2, largest.indices) / -8, -8, 7
    steps = torch.where(scale == 0, 0, blocks / scale).round().clamp(low, high)
    return (steps * scale.half().float()).flatten(-3, -2).to(matrix.dtype)


AnyEdit = Truncate | Remove | Quantise
"""Any weight edit."""

Edit = Annotated[AnyEdit, Field(discriminator="kind")]


def apply_edits(weights: Stacked, edits: Sequence[AnyEdit]) -> dict[str, Shaped[Tensor, "member ..."]]:
    """Return stacked weights, each `[member ...]`, after applying edits in order; unedited weights are not copied.

    Errors: `SpecError` for an unknown weight, or an edit that does not fit it: not a matrix, or a rank above full rank.
    """
    return apply_each(weights, [edits])[0]


def apply_each(
    weights: Stacked, variants: Sequence[Sequence[AnyEdit]]
) -> list[dict[str, Shaped[Tensor, "member ..."]]]:
    """Apply each of several lists of edits to the same weights, decomposing every matrix only once.

    Returns: the weights after each list, each `[member ...]`.

    Errors: as `apply_edits`.
    """
    decompose = cache(_decompose)  # tensors are hashed by identity
    results = []
    for edits in variants:
        edited = dict(weights)
        for edit in edits:
            edited |= edit.apply(edited, decompose)
        results.append(edited)
    return results


def check_edits(edits: Sequence[AnyEdit], weights: Weights, at: str) -> None:
    """Raise `SpecError` below `at` if edits do not fit one member's `weights`."""
    for index, edit in enumerate(edits):
        with below(f"{at}.{index}"):
            edit.check(weights)


def _decompose(*factors: Shaped[Tensor, "member _ _"]) -> SVD:
    """Return U, the singular values and Vᵀ of stacked matrices `[member input output]`, or of products of two."""
    exact = [factor.detach() if factor.dtype == torch.float64 else factor.detach().float() for factor in factors]
    whole = exact[0] if len(exact) == 1 else exact[0] @ exact[1]
    # one diverged member would make the decomposition fail for all: decompose it as zeros, and return NaN for it
    finite = whole.isfinite().all(dim=-1).all(dim=-1)[:, None, None]
    left, singular, right = torch.linalg.svd(torch.where(finite, whole, 0.0), full_matrices=False)
    left, right = (torch.where(finite, factor, torch.nan) for factor in (left, right))
    return left, torch.where(finite[..., 0], singular, torch.nan), right
