"""The scored positions of noisy recall: the same number in every sequence, so that all batches have one shape."""

import math

import numpy as np
from jaxtyping import Bool, Float, Int


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
