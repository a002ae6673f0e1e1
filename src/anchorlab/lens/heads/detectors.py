"""Detectors: attention patterns to numbers that say what a head does.

All take patterns `[... batch head query key]`, each query's row summing to 1, and give one number in [0, 1] per head,
`[... head]`, averaged over the batch; 1 means that the head does this and nothing else. Leading axes, such as `member`,
are kept. P is the pattern, n the length, q a query position, k a key position, all counted from 0.

The functions of the same names in `per_sequence` give `Scores`, with the mean's standard error and interval; profiles,
which try several offsets, have theirs with them. What a head scores that attends at random is told in `chance`.
"""

from jaxtyping import Float, Int
from torch import Tensor

from anchorlab.lens.heads import per_sequence
from anchorlab.lens.heads.per_sequence import Pattern, Queries, broadcast_profile, fixed_position_profile, shift_profile
from anchorlab.lens.heads.scores import Profile

__all__ = [
    "Pattern",
    "PerHead",
    "Profile",
    "Queries",
    "anchor_attending",
    "broadcast",
    "broadcast_profile",
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


def shift(pattern: Pattern, k: int) -> PerHead:
    """How much a head shifts by k: the mean of P[q, q - k] over the queries q >= k (anchor functions, 5.1, Fig 13).

    Errors: `SpecError` for a k outside 0..n-1.
    """
    return per_sequence.shift(pattern, k).mean


def previous_token(pattern: Pattern) -> PerHead:
    """How much a head attends to the previous token: `shift(pattern, 1)`."""
    return shift(pattern, 1)


def self_attending(pattern: Pattern) -> PerHead:
    """How much a head attends to the current token itself: `shift(pattern, 0)`."""
    return shift(pattern, 0)


def next_token(pattern: Pattern) -> PerHead:
    """How much a head without a causal mask attends to the next token: the mean of P[q, q + 1] over q < n - 1.

    Errors: `SpecError` for a single position.
    """
    return per_sequence.next_token(pattern).mean


def broadcast(pattern: Pattern, sources: Int[Tensor, "batch"], queries: Queries = "from") -> PerHead:
    """How much a head broadcasts from one position of each sequence, such as the key's (anchor functions, 5.1, Fig 13).

    With s the source: the mean of P[q, s] over the queries q >= s, or q > s for `after`, or P[n - 1, s] for `last`, or
    over every query for `all`; every sequence counts the same. Sequences whose source is the last position have no
    query `after` it and are left out.

    Errors: `SpecError` for a source outside the sequence, and where no sequence has a query.
    """
    return per_sequence.broadcast(pattern, sources, queries).mean


def fixed_position(pattern: Pattern, position: int, queries: Queries = "from") -> PerHead:
    """How much a head attends to one and the same position p of every sequence, such as the first: `broadcast` from p.

    Errors: `SpecError` for a position outside 0..n-1, and where no query is `after` it.
    """
    return per_sequence.fixed_position(pattern, position, queries).mean


def anchor_attending(pattern: Pattern, anchors: Int[Tensor, "batch *anchor"], queries: Queries = "from") -> PerHead:
    """How much a head attends to the anchors: the sum over the anchors s of P[q, s], averaged over the queries.

    `anchors` are the positions of one anchor per sequence, `[batch]`, or of several, `[batch anchor]`, -1 standing for
    a missing one. The queries are those from the first anchor on, after it, the last, or all; all sequences count the
    same.

    Errors: `SpecError` for an anchor outside the sequence and for a sequence without any.
    """
    return per_sequence.anchor_attending(pattern, anchors, queries).mean


def uniform(pattern: Pattern, causal: bool = True) -> PerHead:
    """How near a head is to attending everywhere alike: the mean over queries of 1 - TV(P[q, :], U[q, :]).

    TV is the total variation distance, half the sum of absolute differences; U[q, k] = 1 / (q + 1) for k <= q, and
    1 / n for all k where attention is not `causal`. The first query of a causal head, which has no choice, is left out.
    A head whose queries attend to one position each scores the mean of 1 / (q + 1), or 1 / n.

    Errors: `SpecError` for a causal head on a single position.
    """
    return per_sequence.uniform(pattern, causal).mean


def induction(pattern: Pattern, tokens: Int[Tensor, "batch position"]) -> PerHead:
    """How much a head attends to what followed the current token before (truncated weights, section 4).

    The sum of P[q, j + 1] over the earlier places j < q of the token at q, averaged over the queries that have such a
    place, of all sequences together.

    Errors: `SpecError` where no token occurs twice in a sequence.
    """
    return per_sequence.induction(pattern, tokens).mean


def matching(pattern: Pattern, tokens: Int[Tensor, "batch position"]) -> PerHead:
    """How much a head attends to the same token as the current one, where it stood before (anchor functions, 5.6).

    The sum of P[q, j] over the earlier places j < q of the token at q, averaged over the queries that have such a
    place, of all sequences together.

    Errors: `SpecError` where no token occurs twice in a sequence.
    """
    return per_sequence.matching(pattern, tokens).mean
