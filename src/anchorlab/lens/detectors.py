"""Detectors: attention patterns to numbers that say what a head does.

All take patterns `[... batch head query key]`, each query's row summing to 1, and give one number in [0, 1] per head,
`[... head]`, averaged over the batch; 1 means that the head does this and nothing else. Leading axes, such as `member`,
are kept. P is the pattern, n the length, q a query position, k a key position, all counted from 0.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorlab.errors import SpecError

Pattern = Float[Tensor, "*lead batch head query key"]
PerHead = Float[Tensor, "*lead head"]

Queries = Literal["from", "after", "last"]
"""Which queries are asked about a source position: from the source on, after it, or the last position alone."""


@dataclass(frozen=True)
class Profile:
    """One number per head for each of several offsets.

    Shapes
        offsets: `[offset]`, the offsets that were tried
        mass: `[... head offset]`, the number for each
    """

    offsets: Int[Tensor, "offset"]
    mass: Float[Tensor, "*lead head offset"]

    @property
    def best(self) -> Int[Tensor, "*lead head"]:
        """The offset with the greatest number, per head."""
        return self.offsets[self.mass.argmax(dim=-1)]

    @property
    def value(self) -> Float[Tensor, "*lead head"]:
        """The greatest number, per head."""
        return self.mass.amax(dim=-1)


def shift(pattern: Pattern, k: int) -> PerHead:
    """How much a head shifts by k: the mean of P[q, q - k] over the queries q >= k (anchor functions, 5.1, Fig 13).

    Errors: `SpecError` for a k outside 0..n-1.
    """
    length = _length(pattern)
    if not 0 <= k < length:
        raise SpecError("k", f"{k} is not a shift within {length} positions", f"give one of 0..{length - 1}")
    return torch.diagonal(pattern, offset=-k, dim1=-2, dim2=-1).mean(dim=-1).mean(dim=-2)


def previous_token(pattern: Pattern) -> PerHead:
    """How much a head attends to the previous token: `shift(pattern, 1)`."""
    return shift(pattern, 1)


def shift_profile(pattern: Pattern, largest: int | None = None) -> Profile:
    """By how much each head shifts: `shift(pattern, k)` for k = 0..largest.

    `largest` is n // 2 when unset: larger shifts rest on few queries, and any head that attends to the first
    position shifts by n - 1.
    """
    largest = _length(pattern) // 2 if largest is None else largest
    mass = torch.stack([shift(pattern, k) for k in range(largest + 1)], dim=-1)
    return Profile(torch.arange(largest + 1, device=pattern.device), mass)


def broadcast(pattern: Pattern, sources: Int[Tensor, "batch"], queries: Queries = "from") -> PerHead:
    """How much a head broadcasts from one position of each sequence, such as the key's (anchor functions, 5.1, Fig 13).

    With s the source: the mean of P[q, s] over the queries q >= s, or q > s for `after`, or P[n - 1, s] for `last`;
    every sequence counts the same. Sequences whose source is the last position have no query `after` it and are left
    out.

    Errors: `SpecError` for a source outside the sequence, and where no sequence has a query.
    """
    length = _length(pattern)
    _check_positions("sources", sources, pattern)
    mass, counts = _columns(pattern, sources.unsqueeze(-1), queries)
    if not bool(counts.any()):
        raise SpecError("sources", f"all stand at the last position {length - 1}", "ask for queries 'from' or 'last'")
    return mass[..., 0]


def broadcast_profile(
    pattern: Pattern, anchors: Int[Tensor, "batch"], largest: int | None = None, queries: Queries = "from"
) -> Profile:
    """From where each head broadcasts: `broadcast` with the sources anchor + offset, for offsets -largest..largest.

    For each offset only the sequences count in which the source lies within the sequence; an offset for which these
    are less than half of all has mass 0. `largest` is n - 1 when unset.
    """
    length = _length(pattern)
    _check_positions("anchors", anchors, pattern)
    largest = length - 1 if largest is None else largest
    offsets = torch.arange(-largest, largest + 1, device=pattern.device)
    mass, counts = _columns(pattern, anchors.to(pattern.device).unsqueeze(-1) + offsets, queries)
    return Profile(offsets, mass * (2 * counts >= len(anchors)))


def anchor_attending(pattern: Pattern, anchors: Int[Tensor, "batch *anchor"], queries: Queries = "from") -> PerHead:
    """How much a head attends to the anchors: the sum over the anchors s of P[q, s], averaged over the queries.

    `anchors` are the positions of one anchor per sequence, `[batch]`, or of several, `[batch anchor]`, -1 standing for
    a missing one. The queries are those from the first anchor on, after it, or the last; all sequences count the same.

    Errors: `SpecError` for an anchor outside the sequence and for a sequence without any.
    """
    length = _length(pattern)
    positions = anchors.to(pattern.device).reshape(len(anchors), -1)
    _check_positions("anchors", positions, pattern, missing=True)
    present = positions >= 0
    if not bool(present.any(dim=-1).all()):
        raise SpecError("anchors", "a sequence has none", "leave it out")
    first = torch.where(present, positions, length).amin(dim=-1)
    keys = torch.zeros(len(positions), length + 1, dtype=pattern.dtype, device=pattern.device)
    keys = keys.scatter(1, torch.where(present, positions, length), 1.0)[:, :length]
    rows = _asked(first, length, queries).to(pattern.dtype)
    counts = rows.sum(dim=-1)
    if not bool(counts.any()):
        raise SpecError("anchors", f"all stand at the last position {length - 1}", "ask for queries 'from' or 'last'")
    weights = rows / counts.clamp(min=1).unsqueeze(-1) / (counts > 0).sum()
    return torch.einsum("... b h q k, b q, b k -> ... h", pattern, weights, keys)


def uniform(pattern: Pattern, causal: bool = True) -> PerHead:
    """How near a head is to attending everywhere alike: the mean over queries of 1 - TV(P[q, :], U[q, :]).

    TV is the total variation distance, half the sum of absolute differences; U[q, k] = 1 / (q + 1) for k <= q, and
    1 / n for all k where attention is not `causal`. The first query of a causal head, which has no choice, is left out.
    A head whose queries attend to one position each scores the mean of 1 / (q + 1), or 1 / n.

    Errors: `SpecError` for a causal head on a single position.
    """
    length = _length(pattern)
    target = torch.ones(length, length, dtype=pattern.dtype, device=pattern.device)
    if causal:
        if length < 2:
            raise SpecError("pattern", "a single position leaves a causal head no choice", "give longer sequences")
        target = target.tril()
    target = target / target.sum(dim=-1, keepdim=True)
    distance = (pattern - target).abs().sum(dim=-1) / 2
    return 1 - distance[..., 1 if causal else 0 :].mean(dim=-1).mean(dim=-2)


def induction(pattern: Pattern, tokens: Int[Tensor, "batch position"]) -> PerHead:
    """How much a head attends to what followed the current token before (truncated weights, section 4).

    The sum of P[q, j + 1] over the earlier places j < q of the token at q, averaged over the queries that have such a
    place, of all sequences together.

    Errors: `SpecError` where no token occurs twice in a sequence.
    """
    length = _length(pattern)
    if tokens.shape != (pattern.shape[-4], length):
        shape = (pattern.shape[-4], length)
        raise SpecError("tokens", f"have shape {tuple(tokens.shape)}", f"the pattern needs {shape}")
    tokens = tokens.to(pattern.device)
    earlier = (tokens.unsqueeze(-1) == tokens.unsqueeze(-2)).tril(-1)
    counted = earlier.any(dim=-1).sum()
    if counted == 0:
        raise SpecError("tokens", "no token occurs twice in a sequence", "give sequences with repetitions")
    followers = earlier.roll(1, dims=-1).to(pattern.dtype)
    return torch.einsum("... b h q k, b q k -> ... h", pattern, followers / counted)


def _columns(pattern: Tensor, sources: Tensor, queries: Queries) -> tuple[Tensor, Tensor]:
    """The attention to `sources` `[batch offset]`: `[... head offset]`, and how many sequences have it, `[offset]`."""
    length = pattern.shape[-1]
    asked = _asked(torch.arange(length, device=pattern.device), length, queries).to(pattern.dtype)
    each = torch.einsum("... b h q k, k q -> ... b h k", pattern, asked / asked.sum(dim=-1, keepdim=True).clamp(min=1))
    sources = sources.to(pattern.device)
    counts = (sources >= 0) & (sources < (length - 1 if queries == "after" else length))
    index = torch.where(counts, sources, 0).unsqueeze(1).expand(*each.shape[:-1], -1)
    shares = counts.to(pattern.dtype) / counts.sum(dim=0).clamp(min=1)
    return torch.einsum("... b h o, b o -> ... h o", each.gather(-1, index), shares), counts.sum(dim=0)


def _asked(sources: Tensor, length: int, queries: Queries) -> Tensor:
    """`[source query]`: True where a query is asked about a source."""
    place = torch.arange(length, device=sources.device)
    if queries == "last":
        return (place == length - 1).expand(len(sources), length)
    return place >= sources.unsqueeze(-1) if queries == "from" else place > sources.unsqueeze(-1)


def _length(pattern: Tensor) -> int:
    queries, keys = pattern.shape[-2:]
    if queries != keys:
        raise SpecError("pattern", f"has {queries} queries for {keys} keys", "record it at every position")
    return int(keys)


def _check_positions(field: str, positions: Tensor, pattern: Tensor, missing: bool = False) -> None:
    batch, length = pattern.shape[-4], pattern.shape[-1]
    if len(positions) != batch:
        raise SpecError(field, f"are given for {len(positions)} sequences", f"the pattern has {batch}")
    if bool(((positions < (-1 if missing else 0)) | (positions >= length)).any()):
        raise SpecError(field, f"a position lies outside 0..{length - 1}", "count from 0")
