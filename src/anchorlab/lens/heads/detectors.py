"""Detectors: how much each head does one thing, such as shift or broadcast, as a number.

Each detector takes attention patterns `[... batch head query key]`, whose rows sum to 1, and returns one score in
[0, 1] per head, `[... head]`, averaged over the batch. A score of 1 means that the head does nothing else. Leading axes
such as `member` are kept. In the formulas P is the pattern, n the length, q a query position and k a key position, all
from 0.

For sequences padded on the right, give their `lengths`, `[batch]`. Each sequence then scores as it would alone: n is
its length, queries and keys at the padding do not count, and a sequence too short for a score is left out.

The functions of the same names in `per_sequence` return `HeadScores`, with standard errors and intervals. The functions
that try several offsets return `OffsetScores`, which have both. `chance` has the scores of random attention.
"""

from jaxtyping import Float, Int
from torch import Tensor

from anchorlab.lens.heads import per_sequence
from anchorlab.lens.heads.per_sequence import (
    AttentionPattern,
    Lengths,
    Queries,
    broadcast_profile,
    fixed_position_profile,
    shift_profile,
)
from anchorlab.lens.heads.scores import OffsetScores

__all__ = [
    "AttentionPattern",
    "Lengths",
    "OffsetScores",
    "PerHead",
    "Queries",
    "anchor_attending",
    "broadcast",
    "broadcast_profile",
    "first_token",
    "fixed_position",
    "fixed_position_profile",
    "induction",
    "matching",
    "next_token",
    "previous_token",
    "self_attending",
    "shift",
    "shift_profile",
    "uniform",
]

PerHead = Float[Tensor, "*lead head"]
"""One score per head, averaged over the batch."""


def shift(pattern: AttentionPattern, k: int, lengths: Lengths = None) -> PerHead:
    """Score how much a head shifts by k: the mean of P[q, q - k] over q >= k (anchor functions, 5.1, Fig 13).

    Errors: `SpecError` for a k outside 0..n-1.
    """
    return per_sequence.shift(pattern, k, lengths).mean


def previous_token(pattern: AttentionPattern, lengths: Lengths = None) -> PerHead:
    """Score how much a head attends to the previous token: `shift(pattern, 1)`."""
    return shift(pattern, 1, lengths)


def self_attending(pattern: AttentionPattern, lengths: Lengths = None) -> PerHead:
    """Score how much a head attends to the current token: `shift(pattern, 0)`."""
    return shift(pattern, 0, lengths)


def next_token(pattern: AttentionPattern, lengths: Lengths = None) -> PerHead:
    """Score how much a head without a causal mask attends to the next token: the mean of P[q, q + 1] over q < n - 1.

    Errors: `SpecError` for a single position.
    """
    return per_sequence.next_token(pattern, lengths).mean


def broadcast(
    pattern: AttentionPattern, sources: Int[Tensor, "batch"], queries: Queries = "from", lengths: Lengths = None
) -> PerHead:
    """Score how much a head broadcasts from one position of each sequence (anchor functions, 5.1, Fig 13).

    With s the source, such as the key's position: the mean of P[q, s] over the queries q >= s (`from`), q > s
    (`after`), q = n - 1 (`last`) or all q (`all`). Every sequence has the same weight; sequences without a query
    `after` their source are left out.

    Errors: `SpecError` for a source outside the sequence, and if no sequence has a query.
    """
    return per_sequence.broadcast(pattern, sources, queries, lengths).mean


def first_token(pattern: AttentionPattern, lengths: Lengths = None) -> PerHead:
    """Score how much a head attends to the first token, whatever it is: the mean of P[q, 0] over q > 0.

    Idle heads of language models attend to the first token, with or without a beginning-of-text token. So if the source
    is always the first token, a broadcasting head cannot be told from an idle head.

    Errors: `SpecError` for a single position.
    """
    return per_sequence.first_token(pattern, lengths).mean


def fixed_position(
    pattern: AttentionPattern, position: int, queries: Queries = "from", lengths: Lengths = None
) -> PerHead:
    """Score how much a head attends to one position p, the same in every sequence: `broadcast` from p.

    Errors: `SpecError` for a position outside 0..n-1, and if no query is `after` it.
    """
    return per_sequence.fixed_position(pattern, position, queries, lengths).mean


def anchor_attending(
    pattern: AttentionPattern,
    anchors: Int[Tensor, "batch *anchor"],
    queries: Queries = "from",
    lengths: Lengths = None,
) -> PerHead:
    """Score how much a head attends to the anchors: the sum over the anchors s of P[q, s], averaged over the queries.

    `anchors` are the positions of one anchor per sequence, `[batch]`, or of several, `[batch anchor]`, with -1 for a
    missing one. The queries are those `from` the first anchor on, `after` it, the `last`, or `all`. Every sequence has
    the same weight.

    Errors: `SpecError` for an anchor outside the sequence, and for a sequence without anchors.
    """
    return per_sequence.anchor_attending(pattern, anchors, queries, lengths).mean


def uniform(pattern: AttentionPattern, causal: bool = True, lengths: Lengths = None) -> PerHead:
    """Score how close a head is to uniform attention: the mean over queries of 1 - TV(P[q, :], U[q, :]).

    TV is the total variation distance, half the sum of absolute differences. U[q, k] = 1 / (q + 1) for k <= q, or
    1 / n for all k if attention is not `causal`. The first query of a causal head, which has one key, is left out. A
    head whose queries attend to one position each scores the mean of 1 / (q + 1), or 1 / n.

    Errors: `SpecError` for a causal head on a single position.
    """
    return per_sequence.uniform(pattern, causal, lengths).mean


def induction(pattern: AttentionPattern, tokens: Int[Tensor, "batch position"], lengths: Lengths = None) -> PerHead:
    """Score how much a head attends to the tokens that followed earlier copies of the current one.

    The sum of P[q, j + 1] over the positions j < q that hold the same token as q, averaged over all queries of all
    sequences with such a position (truncated weights, section 4).

    Errors: `SpecError` if no token occurs twice in a sequence.
    """
    return per_sequence.induction(pattern, tokens, lengths).mean


def matching(pattern: AttentionPattern, tokens: Int[Tensor, "batch position"], lengths: Lengths = None) -> PerHead:
    """Score how much a head attends to earlier copies of the current token (anchor functions, 5.6).

    The sum of P[q, j] over the positions j < q that hold the same token as q, averaged over all queries of all
    sequences with such a position.

    Errors: `SpecError` if no token occurs twice in a sequence.
    """
    return per_sequence.matching(pattern, tokens, lengths).mean
