"""Walker's alias method: draw in bulk from discrete distributions, in constant time per draw."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int, UInt64
from numpy.random import Generator


@dataclass(frozen=True)
class AliasTable:
    """Alias tables that hold a distribution over outcomes for each state.

    Each draw takes one random 64-bit word. Its top bits choose a column. If the other bits are below the column's
    threshold, the outcome is the column's own, else the column's alias. The number of columns is a power of two, so
    every probability is exact up to float64 rounding.

    Shapes
        threshold: `[cell]`, the columns of all states, state by state
        alias: `[cell]`, the outcome of random bits at or above the threshold
    """

    threshold: UInt64[np.ndarray, "cell"]
    alias: Int[np.ndarray, "cell"]
    column_bits: int
    outcomes: int

    @classmethod
    def build(cls, weights: Float[np.ndarray, "state outcome"]) -> "AliasTable":
        """Return the table whose distributions are proportional to the rows of `weights`.

        No weight may be negative, and no row all zero.
        """
        states, outcomes = weights.shape
        bits = max(1, (outcomes - 1).bit_length())
        columns = 1 << bits
        # scale the probabilities so that the mean column has 1; columns beyond the outcomes start empty and borrow all
        share = np.zeros((states, columns))
        share[:, :outcomes] = weights / weights.sum(axis=1, keepdims=True) * columns
        alias = np.tile(np.arange(columns), (states, 1))
        keep = np.ones((states, columns))
        for row in range(states):
            _pair_up(share[row], keep[row], alias[row])
        # Scaling a float64 by a power of two is exact. At the largest threshold, a column always gives its own outcome.
        threshold = (np.minimum(keep, 1.0 - 2.0**-53) * 2.0 ** (64 - bits)).astype(np.uint64)
        threshold[keep >= 1.0] = np.uint64(1 << (64 - bits))
        return cls(threshold.ravel(), alias.astype(np.int64).ravel(), bits, outcomes)

    def draw(self, generator: Generator, states: Int[np.ndarray, "batch"]) -> Int[np.ndarray, "batch"]:
        """Return one outcome for each entry of `states`, drawn independently from that state's distribution."""
        # the top bits of one random word are a uniform column, and the remaining bits are independent of them
        words = generator.integers(0, 2**64, size=states.shape[0], dtype=np.uint64)
        outcome: np.ndarray = np.right_shift(words, np.uint64(64 - self.column_bits)).view(np.int64)
        # the tables of all states lie one after another, with 2^column_bits cells for each state
        cell = np.left_shift(states, self.column_bits)
        cell += outcome
        # compare the remaining bits with the threshold; above it, the cell gives its alias instead of its own column
        words &= np.uint64((1 << (64 - self.column_bits)) - 1)
        swap = words >= self.threshold.take(cell, mode="clip")
        np.copyto(outcome, self.alias.take(cell, mode="clip"), where=swap)
        return outcome


def _pair_up(share: np.ndarray, keep: np.ndarray, alias: np.ndarray) -> None:
    """Fill `keep` and `alias`, `[column]`, from `share` (mean 1): columns below 1 borrow from columns above 1."""
    remaining: list[float] = share.tolist()
    poor = [column for column, value in enumerate(remaining) if value < 1.0]
    rich = [column for column, value in enumerate(remaining) if value >= 1.0]
    while poor and rich:
        # a poor column keeps its own share and is filled up to 1 by one rich column, its alias; so each column
        # has at most two outcomes. The rich column pays for it, and may become poor itself
        low, high = poor.pop(), rich[-1]
        keep[low], alias[low] = remaining[low], high
        remaining[high] -= 1.0 - remaining[low]
        if remaining[high] < 1.0:
            poor.append(rich.pop())
    # The remaining columns are 1 up to rounding. They keep their own outcome, except outcomes of weight zero.
    for column in poor:
        if share[column] == 0.0:
            keep[column], alias[column] = 0.0, int(np.argmax(share))
