"""Detectors sequence by sequence: the scores whose means are in `detectors`, for standard errors and intervals.

All take patterns `[... batch head query key]`, each query's row summing to 1, and give `Scores`: a number in [0, 1] for
each sequence and head. What each number means, and its errors, are told by the detector of the same name.
"""

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.lens.heads.chance import uniform_attention
from anchorlab.lens.heads.scores import Profile, Scores

Pattern = Float[Tensor, "*lead batch head query key"]

Queries = Literal["from", "after", "last", "all"]
"""Which queries are asked about a source position: from the source on, after it, the last alone, or every one."""


def shift(pattern: Pattern, k: int) -> Scores:
    """The mean of P[q, q - k] over the queries q >= k."""
    length = _length(pattern)
    if not 0 <= k < length:
        raise SpecError("k", f"{k} is not a shift within {length} positions", f"give one of 0..{length - 1}")
    return _every_sequence(_diagonal(pattern, -k))


def next_token(pattern: Pattern) -> Scores:
    """The mean of P[q, q + 1] over the queries but the last."""
    if _length(pattern) < 2:
        raise SpecError("pattern", "a single position has no next one", "give longer sequences")
    return _every_sequence(_diagonal(pattern, 1))


def shift_profile(pattern: Pattern, largest: int | None = None) -> Profile:
    """By how much each head shifts: `shift(pattern, k)` for k = 0..largest.

    `largest` is n // 2 when unset: larger shifts rest on few queries, and any head that attends to the first
    position shifts by n - 1.
    """
    largest = _length(pattern) // 2 if largest is None else largest
    each = [shift(pattern, k) for k in range(largest + 1)]
    values, weights = torch.stack([one.values for one in each], dim=-3), torch.stack([one.weights for one in each])
    return Profile(torch.arange(largest + 1, device=pattern.device), Scores(values, weights))


def broadcast(pattern: Pattern, sources: Int[Tensor, "batch"], queries: Queries = "from") -> Scores:
    """The attention to one position of each sequence, averaged over the queries that are asked."""
    length = _length(pattern)
    _check_positions("sources", sources, pattern)
    profile = _columns(pattern, sources.unsqueeze(-1), queries)
    if not bool(profile.weights.any()):
        raise SpecError("sources", f"all stand at the last position {length - 1}", "ask for queries 'from' or 'last'")
    return Scores(profile.values[..., 0, :, :], profile.weights[0])


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
    scores = _columns(pattern, anchors.to(pattern.device).unsqueeze(-1) + offsets, queries)
    common = 2 * scores.weights.sum(dim=-1, keepdim=True) >= len(anchors)
    return Profile(offsets, Scores(scores.values, scores.weights * common))


def fixed_position(pattern: Pattern, position: int, queries: Queries = "from") -> Scores:
    """The attention to the same position of every sequence, averaged over the queries that are asked."""
    length = _length(pattern)
    if not 0 <= position < length:
        raise SpecError("position", f"{position} is outside {length} positions", f"give one of 0..{length - 1}")
    return broadcast(pattern, torch.full((pattern.shape[-4],), position, device=pattern.device), queries)


def fixed_position_profile(pattern: Pattern, largest: int | None = None, queries: Queries = "from") -> Profile:
    """To which position each head attends: `fixed_position` for the positions 0..largest.

    `largest` is n // 2 when unset: later positions have few queries from them on. For heads without a causal mask ask
    `all` queries about every position, up to n - 1.
    """
    length = _length(pattern)
    largest = length // 2 if largest is None else largest
    if not 0 <= largest < length:
        raise SpecError("largest", f"{largest} is outside {length} positions", f"give one of 0..{length - 1}")
    positions = torch.arange(largest + 1, device=pattern.device)
    return Profile(positions, _columns(pattern, positions.expand(pattern.shape[-4], -1), queries))


def anchor_attending(pattern: Pattern, anchors: Int[Tensor, "batch *anchor"], queries: Queries = "from") -> Scores:
    """The attention to the anchors of each sequence, -1 standing for none, averaged over the queries from the first."""
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
    counts = rows.sum(dim=-1, keepdim=True)
    if not bool(counts.any()):
        raise SpecError("anchors", f"all stand at the last position {length - 1}", "ask for queries 'from' or 'last'")
    cells = torch.einsum("bq,bk->bqk", rows / counts.clamp(min=1), keys)
    return Scores(_attention(pattern, cells), (counts > 0).to(pattern.dtype).squeeze(-1))


def uniform(pattern: Pattern, causal: bool = True) -> Scores:
    """1 less the distance from uniform attention, averaged over the queries that have a choice."""
    length = _length(pattern)
    if causal and length < 2:
        raise SpecError("pattern", "a single position leaves a causal head no choice", "give longer sequences")
    target = uniform_attention(length, causal).to(pattern)
    distance = (pattern - target).abs().sum(dim=-1) / 2
    return _every_sequence(1 - distance[..., 1 if causal else 0 :].mean(dim=-1))


def induction(pattern: Pattern, tokens: Int[Tensor, "batch position"]) -> Scores:
    """The attention to what followed the current token before; a sequence counts with its number of such queries."""
    earlier = _earlier(pattern, tokens)
    return _recurring(pattern, earlier, earlier.roll(1, dims=-1))


def matching(pattern: Pattern, tokens: Int[Tensor, "batch position"]) -> Scores:
    """The attention to where the current token stood before; a sequence counts with its number of such queries."""
    earlier = _earlier(pattern, tokens)
    return _recurring(pattern, earlier, earlier)


def _every_sequence(values: Tensor) -> Scores:
    """`[... batch head]`, all sequences counting the same."""
    return Scores(values, values.new_ones(values.shape[-2]))


def _diagonal(pattern: Tensor, offset: int) -> Tensor:
    return torch.diagonal(pattern, offset=offset, dim1=-2, dim2=-1).mean(dim=-1)


def _attention(pattern: Tensor, cells: Tensor) -> Tensor:
    """The sum of a pattern over weighted cells `[batch query key]`: `[... batch head]`."""
    return torch.einsum("...bhqk,bqk->...bh", pattern, cells)


def _columns(pattern: Tensor, sources: Tensor, queries: Queries) -> Scores:
    """The attention to `sources` `[batch offset]`: values `[... offset batch head]`, weights `[offset batch]`.

    Sources outside the sequence, and those that no query is asked about, have weight 0.
    """
    length = pattern.shape[-1]
    asked = _asked(torch.arange(length, device=pattern.device), length, queries).to(pattern.dtype)
    each = torch.einsum("...bhqk,kq->...bhk", pattern, asked / asked.sum(dim=-1, keepdim=True).clamp(min=1))
    sources = sources.to(pattern.device)
    counts = (sources >= 0) & (sources < (length - 1 if queries == "after" else length))
    index = torch.where(counts, sources, 0).unsqueeze(1).expand(*each.shape[:-1], -1)
    return Scores(each.gather(-1, index).movedim(-1, -3), counts.T.to(pattern.dtype))


def _asked(sources: Tensor, length: int, queries: Queries) -> Tensor:
    """`[source query]`: True where a query is asked about a source."""
    place = torch.arange(length, device=sources.device)
    if queries == "all":
        return (place >= 0).expand(len(sources), length)
    if queries == "last":
        return (place == length - 1).expand(len(sources), length)
    return place >= sources.unsqueeze(-1) if queries == "from" else place > sources.unsqueeze(-1)


def _earlier(pattern: Tensor, tokens: Tensor) -> Tensor:
    """`[batch query key]`: True where the key is an earlier place of the query's token."""
    shape = (pattern.shape[-4], _length(pattern))
    if tokens.shape != shape:
        raise SpecError("tokens", f"have shape {tuple(tokens.shape)}", f"the pattern needs {shape}")
    tokens = tokens.to(pattern.device)
    earlier = (tokens.unsqueeze(-1) == tokens.unsqueeze(-2)).tril(-1)
    if not bool(earlier.any()):
        raise SpecError("tokens", "no token occurs twice in a sequence", "give sequences with repetitions")
    return earlier


def _recurring(pattern: Tensor, earlier: Tensor, wanted: Tensor) -> Scores:
    """The attention to the wanted keys, averaged over the queries whose token has an earlier place."""
    counts = earlier.any(dim=-1).sum(dim=-1).to(pattern.dtype)
    cells = wanted.to(pattern.dtype) / counts.clamp(min=1).reshape(-1, 1, 1)
    return Scores(_attention(pattern, cells), counts)


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
