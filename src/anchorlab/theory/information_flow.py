"""The number of attention layers that a retrieval chain needs: exact depths, and the lower bound of Theorem 1.

A chain of D steps uses the positions s_0 .. s_2D. s_0 is the query x_0; pair k has x_{k-1} at s_{2k-1} and x_k at
s_{2k}. The input is pair D, .., pair 1, then the query. The pieces of information are the symbols x_k = e_{2k} and the
positions of pairs p_k = e_{2k-1}, so s_i initially holds e_{i-1} and e_i. In each layer a position may attend to
another position only if they share a piece (assumption 1), and then gets all of its pieces (assumption 2). A position
always holds a run of neighbouring pieces (lemma 2).

A chain is solved when s_0 holds x_D = e_{2D}. Source: stacked attention heads, section 5 and appendix B.
"""

from dataclasses import dataclass
from math import ceil, log

import numpy as np
from jaxtyping import Bool, Int

from anchorlab.errors import SpecError


@dataclass(frozen=True)
class Flow:
    """The abilities of attention in one layer.

    With a `causal` mask a position attends only to earlier positions. Each of `heads` heads fetches from one position;
    None fetches from every position that shares a piece, as in the paper's proof. Two heads suffice for that: every
    fetched run overlaps the position's own run, so the runs that reach furthest left and furthest right bring all.

    Errors: `SpecError` for fewer than 1 head.
    """

    causal: bool = False
    heads: int | None = None

    def __post_init__(self) -> None:
        if self.heads is not None and self.heads < 1:
            raise SpecError("heads", f"{self.heads} heads fetch nothing", "give 1 or more, or None for no limit")


def lower_bound(steps: int) -> int:
    """Return the bound of Theorem 1: no transformer retrieves x_D in fewer than ceil(log_3(2D)) layers.

    Errors: `SpecError` for fewer than 1 step, as in every function here.
    """
    return _least_exponent(3, 2 * _checked(steps))


def least_depth(steps: int, flow: Flow = Flow()) -> int:
    """Return the least number of layers, in closed form.

    - No mask: after t layers s_i holds e_{i-1-g} .. e_{i+g}. It next fetches runs that overlap its own run at the ends,
      so g -> 3 g + 1 and g = (3^t - 1) / 2. The depth is the least t with g >= 2D: ceil(log_3(4D + 1)).
    - No mask, one head: it fetches only to the right, so g = 2^t - 1: a run of n pieces grows to at most 2 n - 1.
    - Causal mask: the first member of a pair learns nothing about later pairs of its chain, and the second member
      reaches no further left than its own pair: g = 2^t - 1 again.
    - Causal mask, one head: the first layer is spent on the position's own pair, so g = 2^t - 2.

    The last three give the same depth, since 2D + 1 is not a power of 2.
    """
    steps = _checked(steps)
    if flow.heads == 1:
        return _least_exponent(2, 2 * steps + 2 if flow.causal else 2 * steps + 1)
    return _least_exponent(2, 2 * steps + 1) if flow.causal else _least_exponent(3, 4 * steps + 1)


def held_by_layer(steps: int, causal: bool = False) -> Bool[np.ndarray, "layer position piece"]:
    """Return the pieces that every position holds before the first layer and after each layer, until s_0 holds x_D.

    Positions are s_0 .. s_2D; pieces are e_-1, which is the query's own position, and e_0 .. e_2D. This
    uses only assumptions 1 and 2, with no limit on heads.
    """
    # a set of pieces as the bits of one integer: bit 0 is e_-1, and sharing a piece is a bitwise and
    held = [1 << i | 1 << (i + 1) for i in range(2 * _checked(steps) + 1)]  # bit i + 1 is e_i
    goal, layers = 1 << (2 * steps + 1), [held]
    while not layers[-1][0] & goal:
        layers.append([_union(layers[-1], i, causal) for i in range(len(held))])
    pieces = range(2 * steps + 2)
    return np.array([[[bool(one >> piece & 1) for piece in pieces] for one in layer] for layer in layers])


def depth_by_runs(steps: int, flow: Flow = Flow()) -> int:
    """Return the least number of layers by tracking both ends of every position's run; feasible for 10 000 steps.

    With one head, each position fetches the run that reaches furthest to the right; under a causal mask, the second
    member of each pair first fetches the first member.
    """
    place = np.arange(2 * _checked(steps) + 1)
    low, high = place - 1, place.copy()
    depth = 0
    while high[0] < 2 * steps:
        low, high = _next_runs(low, high, depth, flow)
        depth += 1
    return depth


def _checked(steps: int) -> int:
    if steps < 1:
        raise SpecError("steps", f"{steps} steps make no chain", "give 1 or more")
    return steps


def _least_exponent(base: int, number: int) -> int:
    """Return the least t with base^t >= number, exactly: the logarithm only gives the starting point."""
    found = max(0, ceil(log(number, base)) - 1)
    while base**found < number:
        found += 1
    return found


def _sees(i: int, j: int) -> bool:
    """Return whether s_j precedes s_i in the input, so that s_i may attend to it under a causal mask."""
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
    # lower ends ascend with the position, so a binary search finds the last run that begins within this one
    furthest = np.searchsorted(low, high, side="right") - 1  # the last position whose run overlaps this run
    right = np.maximum.accumulate(high)[furthest]
    if not flow.causal:
        if flow.heads == 1:
            return low, right
        first = np.searchsorted(high, low, side="left")  # the first position whose run overlaps this run
        return low[first], right
    first_member, second = place % 2 == 1, (place > 0) & (place % 2 == 0)
    # later pairs of the chain come earlier in the input; the first member of a pair shares nothing with them, and the
    # mask hides the second member of its own pair
    ahead = np.where((furthest > place) & ~first_member, right, high)
    partner = np.where(second, np.concatenate([low[:1], low[:-1]]), low)
    if flow.heads == 1:
        return (partner, np.where(second, high, ahead)) if depth == 0 else (low, ahead)
    return np.minimum(low, partner), ahead
