"""Detectors by sequence: how much each head does one thing, with standard errors and intervals.

Each takes patterns `[... batch head query key]`, whose rows sum to 1, and returns `HeadScores`: a score in [0, 1] for
each sequence and head. The profiles return `OffsetScores`: these scores at several offsets or positions. The functions
of the same names in `detectors` return the means. A score of 1 means that the head does nothing else. In the formulas P
is the pattern, n the length, q a query position and k a key position, all from 0.

For sequences padded on the right, give their `lengths`, `[batch]`: n is then a sequence's own length, queries and keys
at the padding do not count, and each sequence scores as if it were alone. A sequence that is too short for a score has
weight 0.
"""

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.lens.heads.chance import uniform_attention
from anchorlab.lens.heads.scores import HeadScores, OffsetScores
from anchorlab.models.precision import at_least_float32

AttentionPattern = Float[Tensor, "*lead batch head query key"]

Lengths = Int[Tensor, "batch"] | None
"""The number of positions of each sequence that count, from the first; None: all."""

Queries = Literal["from", "after", "last", "all"]
"""The queries that a score averages over: from the source position on, after the source, the last query, or all."""

_NO_RECURRENCE = "tokens", "no token occurs twice in a sequence", "give sequences with repetitions"


def shift(pattern: AttentionPattern, k: int, lengths: Lengths = None) -> HeadScores:
    """Score how much a head shifts by k: the mean of P[q, q - k] over q >= k (anchor functions, 5.1, Fig 13)."""
    length = _length(pattern)
    if not 0 <= k < length:
        raise SpecError("k", f"{k} is not a shift within {length} positions", f"give one of 0..{length - 1}")
    return _diagonal(pattern, -k, lengths)


def next_token(pattern: AttentionPattern, lengths: Lengths = None) -> HeadScores:
    """Score how much a head without a causal mask attends to the next token: the mean of P[q, q + 1] over q < n - 1."""
    if _length(pattern) < 2:
        raise SpecError("pattern", "a single position has no next one", "give longer sequences")
    return _diagonal(pattern, 1, lengths)


def first_token(pattern: AttentionPattern, lengths: Lengths = None) -> HeadScores:
    """Score how much a head attends to the first token of a sequence: the mean of P[q, 0] over q > 0.

    Idle heads of language models attend to the first token, with or without a beginning-of-text token. So if the source
    is always the first token, a broadcasting head cannot be told from an idle head.
    """
    if _length(pattern) < 2:
        raise SpecError("pattern", "a single position has none before it", "give longer sequences")
    return _column(pattern, torch.zeros(pattern.shape[-4], dtype=torch.int64), "after", lengths)


def shift_profile(pattern: AttentionPattern, largest: int | None = None, lengths: Lengths = None) -> OffsetScores:
    """Score shifts by every k = 0..largest.

    `largest` is n // 2 by default, with each sequence's own length n. Larger shifts have few queries, and any head that
    attends to the first position would appear to shift by n - 1.
    """
    largest, own = _reach(pattern, largest, lengths)
    if largest < 0:
        raise SpecError("largest", f"{largest} is below 0", "give the largest shift to score")
    each = [shift(pattern, k, lengths) for k in range(largest + 1)]
    values, weights = torch.stack([one.values for one in each], dim=-3), torch.stack([one.weights for one in each])
    offsets = torch.arange(largest + 1, device=pattern.device)
    return OffsetScores(offsets, HeadScores(values, weights * (offsets.unsqueeze(-1) <= own)))


def broadcast(
    pattern: AttentionPattern, sources: Int[Tensor, "batch"], queries: Queries = "from", lengths: Lengths = None
) -> HeadScores:
    """Score how much a head broadcasts from one position of each sequence (anchor functions, 5.1, Fig 13).

    With s the source, such as the key's position: the mean of P[q, s] over the queries q >= s (`from`), q > s
    (`after`), q = n - 1 (`last`) or all q (`all`). Every sequence has the same weight; sequences without a query
    `after` their source are left out.
    """
    length = _length(pattern)
    _check_positions("sources", sources, pattern, lengths)
    scores = _column(pattern, sources, queries, lengths)
    return _some(scores, "sources", f"all are the last position {length - 1}", "use queries 'from' or 'last'")


def best_source(
    pattern: AttentionPattern, besides_first: bool
) -> tuple[Float[Tensor, "*lead batch head"], Int[Tensor, "*lead batch head"]]:
    """Return each sequence's largest score of broadcasting from one position, and that position.

    The source s ranges over the positions up to the middle, so that at least about half of the queries come after it.
    The score is the summed attention of the queries q > s to s, divided by all their attention. With `besides_first`,
    their attention to the first token is left out of the divisor, and the first token is excluded as a source. This is
    for language models: their idle heads attend mostly to the first token, which would look like a broadcast.
    """
    pattern = at_least_float32(pattern)
    length = pattern.shape[-1]
    first = 1 if besides_first else 0
    later = torch.ones(length, length, dtype=pattern.dtype, device=pattern.device).tril(-1)[:, first : length // 2 + 1]
    given = torch.einsum("...qs,qs->...s", pattern[..., first : length // 2 + 1], later)
    # divide by the attention that the later queries can give: all of it, or all except what goes to the first token
    may = 1 - pattern[..., 0] if besides_first else torch.ones_like(pattern[..., 0])
    share = given / torch.einsum("...q,qs->...s", may, later).clamp(min=torch.finfo(pattern.dtype).tiny)
    best = share.max(dim=-1)
    return best.values.clamp(max=1), best.indices + first


def broadcast_profile(
    pattern: AttentionPattern,
    anchors: Int[Tensor, "batch"],
    largest: int | None = None,
    queries: Queries = "from",
    lengths: Lengths = None,
) -> OffsetScores:
    """Score `broadcast` from the sources anchor + offset, for the offsets -largest..largest.

    At each offset, only sequences that contain the source count. `largest` is n - 1 by default.
    """
    length = _length(pattern)
    _check_positions("anchors", anchors, pattern, lengths)
    largest = length - 1 if largest is None else largest
    offsets = torch.arange(-largest, largest + 1, device=pattern.device)
    sources = anchors.to(pattern.device).unsqueeze(-1) + offsets
    return OffsetScores(offsets, _columns(pattern, sources, queries, lengths))


def fixed_position(
    pattern: AttentionPattern, position: int, queries: Queries = "from", lengths: Lengths = None
) -> HeadScores:
    """Score how much a head attends to one position p, the same in every sequence: `broadcast` from p."""
    length = _length(pattern)
    if not 0 <= position < length:
        raise SpecError("position", f"{position} is outside {length} positions", f"give one of 0..{length - 1}")
    scores = _column(pattern, torch.full((pattern.shape[-4],), position), queries, lengths)
    return _some(scores, "position", f"no query comes after {position}", "use queries 'from' or 'last'")


def fixed_position_profile(
    pattern: AttentionPattern, largest: int | None = None, queries: Queries = "from", lengths: Lengths = None
) -> OffsetScores:
    """Score `fixed_position` for the positions 0..largest.

    `largest` is n // 2 by default, with each sequence's own length n, because few queries come at or after later
    positions. For heads without a causal mask, use `all` queries and positions up to n - 1.
    """
    length = _length(pattern)
    largest, own = _reach(pattern, largest, lengths)
    if not 0 <= largest < length:
        raise SpecError("largest", f"{largest} is outside {length} positions", f"give one of 0..{length - 1}")
    positions = torch.arange(largest + 1, device=pattern.device)
    scores = _columns(pattern, positions.expand(pattern.shape[-4], -1), queries, lengths)
    return OffsetScores(positions, HeadScores(scores.values, scores.weights * (positions.unsqueeze(-1) <= own)))


def anchor_attending(
    pattern: AttentionPattern,
    anchors: Int[Tensor, "batch *anchor"],
    queries: Queries = "from",
    lengths: Lengths = None,
) -> HeadScores:
    """Score how much a head attends to the anchors: the sum over the anchors s of P[q, s], averaged over the queries.

    `anchors` are the positions of one anchor per sequence, `[batch]`, or of several, `[batch anchor]`, with -1 for a
    missing one. The queries are those `from` the first anchor on, `after` it, the `last`, or `all`. Every sequence has
    the same weight.
    """
    pattern = at_least_float32(pattern)
    length = _length(pattern)
    limits = _limits(pattern, lengths)
    positions = anchors.to(pattern.device).reshape(len(anchors), -1)
    _check_positions("anchors", positions, pattern, lengths, missing=True)
    present = positions >= 0
    if not bool(present.any(dim=-1).all()):
        raise SpecError("anchors", "a sequence has none", "leave that sequence out")
    first = torch.where(present, positions, length).amin(dim=-1)
    place = torch.arange(length, device=pattern.device)
    keys = (positions.unsqueeze(-1) == place).any(dim=1).to(pattern.dtype)
    least = {"from": first, "after": first + 1, "last": limits - 1, "all": torch.zeros_like(first)}[queries]
    # the mean over the queries that count, and the sum over anchors, as one weight per cell: `[batch query key]`
    rows = ((place >= least.unsqueeze(-1)) & (place < limits.unsqueeze(-1))).to(pattern.dtype)
    counts = rows.sum(dim=-1, keepdim=True)
    if not bool(counts.any()):
        raise SpecError("anchors", f"all are the last position {length - 1}", "use queries 'from' or 'last'")
    cells = torch.einsum("bq,bk->bqk", rows / counts.clamp(min=1), keys)
    values = torch.einsum("...bhqk,bqk->...bh", _cut(pattern, lengths), cells)
    return HeadScores(values, (counts > 0).to(pattern.dtype).squeeze(-1))


def uniform(pattern: AttentionPattern, causal: bool = True, lengths: Lengths = None) -> HeadScores:
    """Score how close a head is to uniform attention: the mean over queries of 1 - TV(P[q, :], U[q, :]).

    TV is the total variation distance, half the sum of absolute differences. U[q, k] = 1 / (q + 1) for k <= q, or
    1 / n for all k if attention is not `causal`. The first query of a causal head, which has one key, is left out. A
    head whose queries attend to one position each scores the mean of 1 / (q + 1), or 1 / n.
    """
    length = _length(pattern)
    if causal and length < 2:
        raise SpecError("pattern", "a single position leaves a causal head no choice", "give longer sequences")
    pattern = at_least_float32(pattern)
    limits = _limits(pattern, lengths)
    target = uniform_attention(length, causal, limits).to(pattern).unsqueeze(1)
    distance = (_cut(pattern, lengths) - target).abs().sum(dim=-1) / 2  # 0 for the queries that do not count
    first = 1 if causal else 0
    counts = (limits - first).unsqueeze(-1).to(pattern.dtype)
    values = 1 - distance[..., first:].sum(dim=-1) / counts.clamp(min=1)
    return HeadScores(values, (counts > 0).to(pattern.dtype).squeeze(-1))


def induction(pattern: AttentionPattern, tokens: Int[Tensor, "batch position"], lengths: Lengths = None) -> HeadScores:
    """Score how much a head attends to the tokens that followed earlier copies of the current one.

    The sum of P[q, j + 1] over the positions j < q that hold the same token as q, averaged over all queries of all
    sequences with such a position (truncated weights, section 4). A sequence's weight is its number of such queries.
    """
    return _some(recurrence(pattern, tokens, "followers", lengths), *_NO_RECURRENCE)


def matching(pattern: AttentionPattern, tokens: Int[Tensor, "batch position"], lengths: Lengths = None) -> HeadScores:
    """Score how much a head attends to earlier copies of the current token (anchor functions, 5.6).

    The sum of P[q, j] over the positions j < q that hold the same token as q, averaged over all queries of all
    sequences with such a position. A sequence's weight is its number of such queries.
    """
    return _some(recurrence(pattern, tokens, "copies", lengths), *_NO_RECURRENCE)


def recurrence(
    pattern: AttentionPattern,
    tokens: Int[Tensor, "batch position"],
    wanted: Literal["copies", "followers"],
    lengths: Lengths = None,
) -> HeadScores:
    """Score `matching` (copies) or `induction` (followers); sequences in which no token occurs twice have weight 0."""
    pattern = at_least_float32(pattern)
    shape = (pattern.shape[-4], _length(pattern))
    if tokens.shape != shape:
        raise SpecError("tokens", f"have shape {tuple(tokens.shape)}", f"the pattern needs {shape}")
    tokens, inside = tokens.to(pattern.device), _inside(pattern, lengths)
    # mark earlier copies of each query's token; what followed them is one place to the right
    earlier = (tokens.unsqueeze(-1) == tokens.unsqueeze(-2)).tril(-1) & inside.unsqueeze(-1)
    counts = earlier.any(dim=-1).sum(dim=-1).to(pattern.dtype)
    keys = earlier if wanted == "copies" else earlier.roll(1, dims=-1)
    cells = keys.to(pattern.dtype) / counts.clamp(min=1).reshape(-1, 1, 1)
    return HeadScores(torch.einsum("...bhqk,bqk->...bh", _cut(pattern, lengths), cells), counts)


def _some(scores: HeadScores, field: str, problem: str, remedy: str) -> HeadScores:
    if not bool(scores.weights.any()):
        raise SpecError(field, problem, remedy)
    return scores


def _diagonal(pattern: AttentionPattern, offset: int, lengths: Lengths) -> HeadScores:
    pattern = at_least_float32(pattern)
    counts = (_limits(pattern, lengths) - abs(offset)).clamp(min=0).to(pattern.dtype)
    sums = torch.diagonal(_cut(pattern, lengths), offset=offset, dim1=-2, dim2=-1).sum(dim=-1)
    return HeadScores(sums / counts.clamp(min=1).unsqueeze(-1), (counts > 0).to(pattern.dtype))


def _columns(
    pattern: AttentionPattern, sources: Int[Tensor, "batch offset"], queries: Queries, lengths: Lengths
) -> HeadScores:
    """The attention to sources, `[... offset batch head]`, with weight 0 outside the sequence and without a query."""
    length, limits = pattern.shape[-1], _limits(pattern, lengths)
    pattern = _cut(at_least_float32(pattern), lengths)
    place = torch.arange(length, device=pattern.device)
    if queries == "last":
        last = (limits - 1).reshape(-1, 1, 1, 1).expand(*pattern.shape[:-2], 1, length)
        sums, counts = pattern.gather(-2, last).squeeze(-2), torch.ones_like(limits).unsqueeze(-1)
    else:
        least = {"from": place, "after": place + 1, "all": torch.zeros_like(place)}[queries].unsqueeze(-1)
        # for every key at once: the summed attention of the queries that count for it, and how many these are
        sums = torch.einsum("...bhqk,kq->...bhk", pattern, (place >= least).to(pattern.dtype))
        counts = limits.unsqueeze(-1) - least.T
    each = sums / counts.clamp(min=1).unsqueeze(1)
    sources = sources.to(pattern.device)
    counted = (sources >= 0) & (sources < limits.unsqueeze(-1) - int(queries == "after"))
    index = torch.where(counted, sources, 0).unsqueeze(1).expand(*each.shape[:-1], -1)
    return HeadScores(each.gather(-1, index).movedim(-1, -3), counted.T.to(pattern.dtype))


def _column(pattern: AttentionPattern, sources: Int[Tensor, "batch"], queries: Queries, lengths: Lengths) -> HeadScores:
    scores = _columns(pattern, sources.unsqueeze(-1), queries, lengths)
    return HeadScores(scores.values[..., 0, :, :], scores.weights[0])


def _reach(pattern: AttentionPattern, largest: int | None, lengths: Lengths) -> tuple[int, Int[Tensor, "batch"]]:
    """The largest offset to score, and each sequence's own; by default half of its length."""
    limits = _limits(pattern, lengths)
    return (_length(pattern) // 2, limits // 2) if largest is None else (largest, limits - 1)


def _limits(pattern: AttentionPattern, lengths: Lengths) -> Int[Tensor, "batch"]:
    batch, length = pattern.shape[-4], _length(pattern)
    if lengths is None:
        return torch.full((batch,), length, device=pattern.device)
    if lengths.shape != (batch,):
        raise SpecError("lengths", f"have shape {tuple(lengths.shape)}", f"the pattern has {batch} sequences")
    if bool(((lengths < 1) | (lengths > length)).any()):
        raise SpecError("lengths", f"one lies outside 1..{length}", "count the positions of each sequence")
    return lengths.to(pattern.device)


def _inside(pattern: AttentionPattern, lengths: Lengths) -> Bool[Tensor, "batch position"]:
    return torch.arange(pattern.shape[-1], device=pattern.device) < _limits(pattern, lengths).unsqueeze(-1)


def _cut(pattern: AttentionPattern, lengths: Lengths) -> AttentionPattern:
    """The pattern with 0 in place of the queries and keys that do not count."""
    if lengths is None:
        return pattern
    inside = _inside(pattern, lengths).unsqueeze(1)
    return pattern.masked_fill(~(inside.unsqueeze(-1) & inside.unsqueeze(-2)), 0.0)


def _length(pattern: AttentionPattern) -> int:
    queries, keys = pattern.shape[-2:]
    if queries != keys:
        raise SpecError("pattern", f"has {queries} queries for {keys} keys", "record it at every position")
    return int(keys)


def _check_positions(field: str, positions: Tensor, pattern: Tensor, lengths: Lengths, missing: bool = False) -> None:
    batch, length = pattern.shape[-4], pattern.shape[-1]
    if len(positions) != batch:
        raise SpecError(field, f"are given for {len(positions)} sequences", f"the pattern has {batch}")
    limits = _limits(pattern, lengths).to(positions.device).reshape(-1, *(1,) * (positions.ndim - 1))
    if bool(((positions < (-1 if missing else 0)) | (positions >= limits)).any()):
        end = length - 1 if lengths is None else "its length - 1"
        raise SpecError(field, f"a position lies outside 0..{end}", "count from 0")
