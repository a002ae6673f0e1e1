"""What noisy recall reads in a sequence: what followed a token's earlier occurrences, and which positions are scored.

The number of scored positions is the same in every sequence, so that all batches have one shape.
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int


@dataclass(frozen=True)
class Evidence:
    """The tokens that followed earlier occurrences of each token.

    Shapes
        recalled: `[row position]`, the only token other than noise that followed earlier occurrences of the token at
            this position; -1 if there is none, or several different ones
        noises: `[row position]`, how often noise followed earlier occurrences of the token at this position
        repeated: `[row position]`, whether the token at this position occurred before
        follower: `[row token]`, the first token other than noise that follows each token; -1 for none
        source: `[row token]`, the position of that follower; -1 for none
    """

    recalled: Int[np.ndarray, "row position"]
    noises: Int[np.ndarray, "row position"]
    repeated: Bool[np.ndarray, "row position"]
    follower: Int[np.ndarray, "row token"]
    source: Int[np.ndarray, "row token"]


def read_evidence(
    tokens: Int[np.ndarray, "row position"], states: int, noise: Bool[np.ndarray, "row position"]
) -> Evidence:
    """Return the evidence of sequences whose tokens are below `states` and are noise where `noise` says so.

    The last token is no evidence about the token before it, because it is set to a trigger, not drawn from the chain.
    """
    (rows, length), every = tokens.shape, np.arange(len(tokens))
    # The evidence so far, by token:
    follower, source = np.full((rows, states), -1), np.full((rows, states), -1)
    noise_count, seen = np.zeros((rows, states), dtype=np.int64), np.zeros((rows, states), dtype=bool)
    consistent = np.ones((rows, states), dtype=bool)  # no two different followers, noise aside
    # The evidence available at each position:
    recalled, noises = np.full(tokens.shape, -1), np.zeros(tokens.shape, dtype=np.int64)
    repeated = np.zeros(tokens.shape, dtype=bool)
    for position in range(length):
        token = tokens[:, position]
        if 0 < position < length - 1:
            before, informative = tokens[:, position - 1], ~noise[:, position]
            first = follower[every, before]
            consistent[every, before] &= ~informative | (first < 0) | (first == token)
            noise_count[every, before] += ~informative
            new = every[informative & (first < 0)]
            follower[new, before[new]], source[new, before[new]] = token[new], position
        recalled[:, position] = np.where(consistent[every, token], follower[every, token], -1)
        noises[:, position] = noise_count[every, token]
        repeated[:, position] = seen[every, token]
        seen[every, token] = True
    return Evidence(recalled, noises, repeated, follower, source)


def trigger_share(
    initial: Float[np.ndarray, "state"], following: Float[np.ndarray, "state state"], triggers: list[int]
) -> float:
    """Return the long-run share of triggers in a chain that starts from `initial` and continues by `following`."""
    # The lazy chain has the same stationary law and converges to it even if the chain is periodic.
    stationary = initial @ np.linalg.matrix_power((following + np.eye(len(following))) / 2, 4096)
    return float(min(max(stationary[triggers].sum() / stationary.sum(), 0.0), 1.0))


def scored_width(length: int, share: float) -> int:
    """Return the number of scored positions: T p + 6 sqrt(T p (1 - p)) for the share p of triggers, plus the last one.

    Only a few sequences have more repeated triggers: those whose output is a trigger, or leads straight back to a
    trigger.
    """
    spread = math.sqrt(length * share * (1 - share))
    return min(length - 1, math.ceil(length * share + 6 * spread) + 1)


def scored_positions(
    repeated: Bool[np.ndarray, "row position"], width: int
) -> tuple[Int[np.ndarray, "row scored"], Float[np.ndarray, "row scored"]]:
    """Return the positions of repeated triggers in ascending order, with the last position last, and their weights.

    A row with fewer repeated triggers is padded on the left with the last position at weight 0; from a row with more,
    the earliest are left out.
    """
    rows, length = repeated.shape
    positions = np.full((rows, width), length - 1, dtype=np.int64)
    weights = np.zeros((rows, width), dtype=np.float32)
    place = np.flatnonzero(repeated[:, :-2])  # a trigger at T-1 is not scored: z_T is set, not drawn
    row, position = np.divmod(place, length - 2)
    counts = np.bincount(row, minlength=rows)
    from_end = np.repeat(np.cumsum(counts), counts) - np.arange(row.size)  # 1 for the last trigger of a row
    column = width - 1 - from_end
    kept = column >= 0
    cell = row[kept] * width + column[kept]
    positions.reshape(-1)[cell] = position[kept]
    weights.reshape(-1)[cell] = 1.0
    weights[:, -1] = repeated[:, -1]
    return positions, weights
