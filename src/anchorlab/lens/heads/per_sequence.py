"""Detectors by sequence: the scores whose means are in `detectors`, with standard errors and intervals.

Each takes patterns `[... batch head query key]`, whose rows sum to 1, and returns `HeadScores`: a score in [0, 1] for
each sequence and head. The profiles return `OffsetScores`: these scores at several offsets or positions. For the
meaning of a score and its errors see the detector of the same name in `detectors`.
"""

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.lens.heads.chance import uniform_attention
from anchorlab.lens.heads.scores import HeadScores, OffsetScores

AttentionPattern = Float[Tensor, "*lead batch head query key"]

Queries = Literal["from", "after", "last", "all"]
"""The queries that a score averages over: those from the source position on, those after it, the last one, or all."""


def shift(pattern: AttentionPattern, k: int) -> HeadScores:
    """Score shifts by k: the mean of P[q, q - k] over the queries q >= k."""
    length = _length(pattern)
    if not 0 <= k < length:
        raise SpecError("k", f"{k} is not a shift within {length} positions", f"give one of 0..{length - 1}")
    return _every_sequence(_diagonal(pattern, -k))


def next_token(pattern: AttentionPattern) -> HeadScores:
    """Score attention to the next token: the mean of P[q, q + 1] over all queries but the last."""
    if _length(pattern) < 2:
        raise SpecError("pattern", "a single position has no next one", "give longer sequences")
    return _every_sequence(_diagonal(pattern, 1))


def shift_profile(pattern: AttentionPattern, largest: int | None = None) -> OffsetScores:
    """Score shifts by every k = 0..largest.

    `largest` is n // 2 by default: larger shifts have few queries, and any head that attends to the first position
    shifts by n - 1.

    Errors: `SpecError` for a `largest` below 0, or of n or more.
    """
    largest = _length(pattern) // 2 if largest is None else largest
    if largest < 0:
        raise SpecError("largest", f"{largest} is below 0", "give the largest shift to score")
    each = [shift(pattern, k) for k in range(largest + 1)]
    values, weights = torch.stack([one.values for one in each], dim=-3), torch.stack([one.weights for one in each])
    return OffsetScores(torch.arange(largest + 1, device=pattern.device), HeadScores(values, weights))


def broadcast(pattern: AttentionPattern, sources: Int[Tensor, "batch"], queries: Queries = "from") -> HeadScores:
    """Score attention to one position of each sequence, averaged over the queries."""
    length = _length(pattern)
    _check_positions("sources", sources, pattern)
    profile = _columns(pattern, sources.unsqueeze(-1), queries)
    if not bool(profile.weights.any()):
        raise SpecError("sources", f"all are the last position {length - 1}", "use queries 'from' or 'last'")
    return HeadScores(profile.values[..., 0, :, :], profile.weights[0])


def broadcast_profile(
    pattern: AttentionPattern, anchors: Int[Tensor, "batch"], largest: int | None = None, queries: Queries = "from"
) -> OffsetScores:
    """Score `broadcast` from the sources anchor + offset, for the offsets -largest..largest.

    At each offset only those sequences count that contain the source; where they are less than half of all, the mass is
    0. `largest` is n - 1 by default.

    Errors: `SpecError` for an anchor outside the sequence.
    """
    length = _length(pattern)
    _check_positions("anchors", anchors, pattern)
    largest = length - 1 if largest is None else largest
    offsets = torch.arange(-largest, largest + 1, device=pattern.device)
    scores = _columns(pattern, anchors.to(pattern.device).unsqueeze(-1) + offsets, queries)
    common = 2 * scores.weights.sum(dim=-1, keepdim=True) >= len(anchors)
    return OffsetScores(offsets, HeadScores(scores.values, scores.weights * common))


def fixed_position(pattern: AttentionPattern, position: int, queries: Queries = "from") -> HeadScores:
    """Score attention to one position, the same in every sequence, averaged over the queries."""
    length = _length(pattern)
    if not 0 <= position < length:
        raise SpecError("position", f"{position} is outside {length} positions", f"give one of 0..{length - 1}")
    return broadcast(pattern, torch.full((pattern.shape[-4],), position, device=pattern.device), queries)


def fixed_position_profile(
    pattern: AttentionPattern, largest: int | None = None, queries: Queries = "from"
) -> OffsetScores:
    """Score `fixed_position` for the positions 0..largest.

    `largest` is n // 2 by default, because few queries come at or after a later position. For heads without a causal
    mask use `all` queries and positions up to n - 1.

    Errors: `SpecError` for a `largest` outside 0..n-1.
    """
    length = _length(pattern)
    largest = length // 2 if largest is None else largest
    if not 0 <= largest < length:
        raise SpecError("largest", f"{largest} is outside {length} positions", f"give one of 0..{length - 1}")
    positions = torch.arange(largest + 1, device=pattern.device)
    return OffsetScores(positions, _columns(pattern, positions.expand(pattern.shape[-4], -1), queries))


def anchor_attending(
    pattern: AttentionPattern, anchors: Int[Tensor, "batch *anchor"], queries: Queries = "from"
) -> HeadScores:
    """Score attention to the anchors of each sequence, -1 for a missing one, averaged over the queries."""
    length = _length(pattern)
    positions = anchors.to(pattern.device).reshape(len(anchors), -1)
    _check_positions("anchors", positions, pattern, missing=True)
    present = positions >= 0
    if not bool(present.any(dim=-1).all()):
        raise SpecError("anchors", "a sequence has none", "leave that sequence out")
    first = torch.where(present, positions, length).amin(dim=-1)
    keys = torch.zeros(len(positions), length + 1, dtype=pattern.dtype, device=pattern.device)
    keys = keys.scatter(1, torch.where(present, positions, length), 1.0)[:, :length]
    rows = _averaged_queries(first, length, queries).to(pattern.dtype)
    counts = rows.sum(dim=-1, keepdim=True)
    if not bool(counts.any()):
        raise SpecError("anchors", f"all are the last position {length - 1}", "use queries 'from' or 'last'")
    cells = torch.einsum("bq,bk->bqk", rows / counts.clamp(min=1), keys)
    return HeadScores(_attention(pattern, cells), (counts > 0).to(pattern.dtype).squeeze(-1))


def uniform(pattern: AttentionPattern, causal: bool = True) -> HeadScores:
    """Score 1 minus the distance from uniform attention, averaged over the queries with more than one key."""
    length = _length(pattern)
    if causal and length < 2:
        raise SpecError("pattern", "a single position leaves a causal head no choice", "give longer sequences")
    target = uniform_attention(length, causal).to(pattern)
    distance = (pattern - target).abs().sum(dim=-1) / 2
    return _every_sequence(1 - distance[..., 1 if causal else 0 :].mean(dim=-1))


def induction(pattern: AttentionPattern, tokens: Int[Tensor, "batch position"]) -> HeadScores:
    """Score attention to the tokens after earlier copies of the current one.

    The weight of a sequence is its number of queries whose token occurs earlier.
    """
    earlier = _earlier(pattern, tokens)
    return _recurring(pattern, earlier, earlier.roll(1, dims=-1))


def matching(pattern: AttentionPattern, tokens: Int[Tensor, "batch position"]) -> HeadScores:
    """Score attention to earlier copies of the current token.

    The weight of a sequence is its number of queries whose token occurs earlier.
    """
    earlier = _earlier(pattern, tokens)
    return _recurring(pattern, earlier, earlier)


def _every_sequence(values: Float[Tensor, "*lead batch head"]) -> HeadScores:
    """Scores with the same weight for every sequence."""
    return HeadScores(values, values.new_ones(values.shape[-2]))


def _diagonal(pattern: AttentionPattern, offset: int) -> Float[Tensor, "*lead batch head"]:
    return torch.diagonal(pattern, offset=offset, dim1=-2, dim2=-1).mean(dim=-1)


def _attention(pattern: AttentionPattern, cells: Float[Tensor, "batch query key"]) -> Float[Tensor, "*lead batch head"]:
    """The sum of a pattern over weighted cells."""
    return torch.einsum("...bhqk,bqk->...bh", pattern, cells)


def _columns(pattern: AttentionPattern, sources: Int[Tensor, "batch offset"], queries: Queries) -> HeadScores:
    """The attention to the sources: values `[... offset batch head]`, weights `[offset batch]`.

    Sources outside the sequence, and sources without a query, have weight 0.
    """
    length = pattern.shape[-1]
    averaged = _averaged_queries(torch.arange(length, device=pattern.device), length, queries).to(pattern.dtype)
    each = torch.einsum("...bhqk,kq->...bhk", pattern, averaged / averaged.sum(dim=-1, keepdim=True).clamp(min=1))
    sources = sources.to(pattern.device)
    counts = (sources >= 0) & (sources < (length - 1 if queries == "after" else length))
    index = torch.where(counts, sources, 0).unsqueeze(1).expand(*each.shape[:-1], -1)
    return HeadScores(each.gather(-1, index).movedim(-1, -3), counts.T.to(pattern.dtype))


def _averaged_queries(sources: Int[Tensor, "source"], length: int, queries: Queries) -> Bool[Tensor, "source query"]:
    """True for the queries that a source's score averages over."""
    place = torch.arange(length, device=sources.device)
    if queries == "all":
        return (place >= 0).expand(len(sources), length)
    if queries == "last":
        return (place == length - 1).expand(len(sources), length)
    return place >= sources.unsqueeze(-1) if queries == "from" else place > sources.unsqueeze(-1)


def _earlier(pattern: AttentionPattern, tokens: Tensor) -> Bool[Tensor, "batch query key"]:
    """True where the key is an earlier copy of the query's token; `tokens` are `[batch position]`."""
    shape = (pattern.shape[-4], _length(pattern))
    if tokens.shape != shape:
        raise SpecError("tokens", f"have shape {tuple(tokens.shape)}", f"the pattern needs {shape}")
    tokens = tokens.to(pattern.device)
    earlier = (tokens.unsqueeze(-1) == tokens.unsqueeze(-2)).tril(-1)
    if not bool(earlier.any()):
        raise SpecError("tokens", "no token occurs twice in a sequence", "give sequences with repetitions")
    return earlier


def _recurring(
    pattern: AttentionPattern, earlier: Bool[Tensor, "batch query key"], wanted: Bool[Tensor, "batch query key"]
) -> HeadScores:
    """The attention to the wanted keys, averaged over the queries whose token occurs earlier."""
    counts = earlier.any(dim=-1).sum(dim=-1).to(pattern.dtype)
    cells = wanted.to(pattern.dtype) / counts.clamp(min=1).reshape(-1, 1, 1)
    return HeadScores(_attention(pattern, cells), counts)


def _length(pattern: AttentionPattern) -> int:
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
