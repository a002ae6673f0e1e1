"""How far information can flow through attention layers along a retrieval chain: exact depths beside Theorem 1's bound.

The positions that matter for a chain of D steps are s_0 .. s_2D: s_0 is the query x_0, and pair k holds x_{k-1} at
s_{2k-1} and x_k at s_{2k}; in the input stand pair D, .., pair 1, then the query. Pieces of information are the symbols
x_k = e_{2k} and the pairs' positions p_k = e_{2k-1}, so that s_i begins with e_{i-1} and e_i. In a layer a position may
attend to another only if they share a piece (assumption 1) and then gets all that is there (assumption 2). What a
position holds is always a run of neighbouring pieces (lemma 2).

Solved is a chain when s_0 holds x_D = e_{2D}. Source: stacked attention heads, section 5 and appendix B.
"""

from dataclasses import dataclass
from math import ceil, log

import numpy as np
from jaxtyping import Int

from anchorlab.errors import SpecError


@dataclass(frozen=True)
class Flow:
    """What attention may do: with a `causal` mask a position sees those before it alone; `heads` of a layer fetch one
    position each (None: every position that shares a piece is fetched at once, as in the paper's proof).

    Two heads are as good as any number: what is fetched overlaps what is there, so that the position reaching furthest
    to each side brings everything.
    """

    causal: bool = False
    heads: int | None = None

    def __post_init__(self) -> None:
        if self.heads is not None and self.heads < 1:
            raise SpecError("heads", f"{self.heads} fetch nothing", "give 1 or more, or None for no limit")


def lower_bound(steps: int) -> int:
    """Theorem 1: with fewer layers than log_3(2D), rounded up, no transformer retrieves x_D."""
    return _least_exponent(3, 2 * _checked(steps))


def least_depth(steps: int, flow: Flow = Flow()) -> int:
    """The least number of layers in closed form.

    Without a mask s_i holds e_{i-1-g} .. e_{i+g} after t layers, and what it fetches next begins no later than its
    end: g -> 3 g + 1, g = (3^t - 1) / 2, which must be 2D: log_3(4D + 1), rounded up. One head fetches to the right
    alone, 2^t - 1; with any choices a run of n pieces has at most 2 n - 1 after the next layer. Behind a mask the first
    member of a pair learns nothing of its chain's later part, and the second member never more than its own pair to the
    left: 2^t - 1 again, and with one head 2^t - 2, as the first layer is spent on the pair. These last three are one
    depth, since 2D + 1 is no power of 2.

    Errors: `SpecError` for a chain without steps, as of every function here.
    """
    steps = _checked(steps)
    if flow.heads == 1:
        return _least_exponent(2, 2 * steps + 2 if flow.causal else 2 * steps + 1)
    return _least_exponent(2, 2 * steps + 1) if flow.causal else _least_exponent(3, 4 * steps + 1)


def depth_by_sets(steps: int, causal: bool = False) -> int:
    """The least number of layers by simulation of every position's set of pieces, under assumptions 1 and 2.

    Nothing is used but the assumptions; for one head, whose every choice matters, see `depth_by_search`.
    """
    held = [
        1 << i | 1 << (i + 1) for i in range(2 * _checked(steps) + 1)
    ]  # bit i + 1 is e_i: s_0 also holds its own position
    goal, depth = 1 << (2 * steps + 1), 0
    while not held[0] & goal:
        held = [_union(held, i, causal) for i in range(len(held))]
        depth += 1
    return depth


def depth_by_runs(steps: int, flow: Flow = Flow()) -> int:
    """The same by the ends of every position's run, fast enough for chains of ten thousand steps.

    With one head each position fetches what reaches furthest to the right, after the first layer behind a mask, in
    which the second members fetch their partners.
    """
    place = np.arange(2 * _checked(steps) + 1)
    low, high = place - 1, place.copy()
    depth = 0
    while high[0] < 2 * steps:
        low, high = _next_runs(low, high, depth, flow)
        depth += 1
    return depth


def depth_by_search(steps: int, causal: bool = False) -> int:
    """The least number of layers with one head, over all that each position could fetch in every layer.

    A bound from below that asks for less than one consistent choice: each fetch may find any run that some choices
    would have left there. Where `depth_by_runs` attains it, both are exact. For short chains: the runs are enumerated.
    """
    runs = [{(i - 1, i)} for i in range(2 * _checked(steps) + 1)]
    depth = 0
    while max(high for _, high in runs[0]) < 2 * steps:
        runs = [_reachable(runs, i, causal) for i in range(len(runs))]
        depth += 1
    return depth


def _checked(steps: int) -> int:
    if steps < 1:
        raise SpecError("steps", f"{steps} make no chain", "give 1 or more")
    return steps


def _least_exponent(base: int, number: int) -> int:
    """The least t with base^t >= number; exact, since the logarithm only suggests where to look."""
    found = max(0, ceil(log(number, base)) - 1)
    while base**found < number:
        found += 1
    return found


def _sees(i: int, j: int) -> bool:
    """Whether s_j stands before s_i in the input, pair D first: so under a causal mask s_i may attend to it."""
    pair_i, pair_j = (i + 1) // 2, (j + 1) // 2
    return pair_j > pair_i or (pair_j == pair_i and j < i)


def _union(held: list[int], i: int, causal: bool) -> int:
    found = held[i]
    for j, other in enumerate(held):
        if held[i] & other and (not causal or _sees(i, j)):
            found |= other
    return found


def _next_runs(
    low: Int[np.ndarray, "place"], high: Int[np.ndarray, "place"], depth: int, flow: Flow
) -> tuple[Int[np.ndarray, "place"], Int[np.ndarray, "place"]]:
    place = np.arange(len(low))
    furthest = np.searchsorted(low, high, side="right") - 1  # the last position whose run begins in reach
    right = np.maximum.accumulate(high)[furthest]
    if not flow.causal:
        if flow.heads == 1:
            return low, right
        first = np.searchsorted(high, low, side="left")  # the first position whose run ends in reach
        return low[first], right
    second = (place > 0) & (place % 2 == 0)
    ahead = np.where(furthest > place, right, high)  # what stands to the right in the chain comes before in the input
    partner = np.where(second, np.concatenate([low[:1], low[:-1]]), low)
    if flow.heads == 1:
        return (partner, np.where(second, high, ahead)) if depth == 0 else (low, ahead)
    return np.minimum(low, partner), ahead


def _reachable(runs: list[set[tuple[int, int]]], i: int, causal: bool) -> set[tuple[int, int]]:
    found = set(runs[i])
    for j, others in enumerate(runs):
        if j == i or (causal and not _sees(i, j)):
            continue
        for low, high in runs[i]:
            for other_low, other_high in others:
                if other_low <= high and low <= other_high:
                    found.add((min(low, other_low), max(high, other_high)))
    # a run inside another is never of more use
    return {one for one in found if not any(two != one and two[0] <= one[0] and one[1] <= two[1] for two in found)}
