"""One rule for the 95 % interval of a value over independent units: seeds, runs, questions.

A share has exact bounds, fewer than ten units Student's interval, and more the bootstrap's
(`anchorlab.studies.interval`).
"""

from collections.abc import Sequence
from math import ceil, isfinite, log, sqrt
from statistics import stdev

Interval = tuple[float, float]
"""The lower and the upper end."""

Band = tuple[float | None, float | None]
"""The lowest and the highest value that accept a claim, both included; None leaves that side open."""

LEVEL = 0.95

FEW = 10
"""Below this number of units the bootstrap covers too little: of normal values 91 % over five, 75 % over three."""

ENOUGH = 14
"""The number of equal units that decide a claim: with 95 %, they show that at least 0.8 of all units are the same."""

ROUNDING = 1e-6
"""The relative error to which values are equal; float32 has 6e-8 in each operation."""


def all_equal(units: Sequence[float]) -> bool:
    """Return whether all units have one value within rounding, so that their interval would have no width."""
    return max(units) - min(units) <= ROUNDING * max(map(abs, units))


def student(units: Sequence[float], value: float) -> Interval | None:
    """Return Student's interval of a value, from what each unit gives alone; exact for the mean of normal values.

    None below two units, for equal units, and if a number is not finite.
    """
    from scipy import special

    if len(units) < 2 or not all(map(isfinite, (*units, value))) or all_equal(units):
        return None
    half = float(special.stdtrit(len(units) - 1, (1 + LEVEL) / 2)) * stdev(units) / sqrt(len(units))
    return value - half, value + half


def share(passed: int, count: int) -> Interval | None:
    """Return the exact bounds of a share, `passed` of `count` units; None for no units.

    Each bound alone holds with 95 %, because a claim about a share asks on one side: 14 of 14 units show that at least
    0.8 of all do.

    Source: Clopper and Pearson, "The use of confidence or fiducial limits illustrated in the case of the binomial",
        Biometrika 26, 1934.
    """
    from scipy import special

    if not count:
        return None
    low = float(special.betaincinv(passed, count - passed + 1, 1 - LEVEL)) if passed else 0.0
    high = float(special.betaincinv(passed + 1, count - passed, LEVEL)) if passed < count else 1.0
    return low, high


def units_needed(band: Band) -> int | None:
    """Return how many units show that a share is in a band if it holds in all of them; None if no number does.

    All of n units bound a share by 0.05^(1/n) from below with 95 %: 14 units show that it is at least 0.8.
    """
    low, high = (0.0 if band[0] is None else band[0]), (1.0 if band[1] is None else band[1])
    edge = low if high >= 1 else 1 - high if low <= 0 else 1.0
    return ceil(log(1 - LEVEL) / log(edge)) if 0 < edge < 1 else None


def interval_again(value: float, units: Sequence[float], kept: Interval | None, spread: str | None) -> Interval | None:
    """Return the interval of a kept value by today's rule; a bootstrap interval stays as it was kept.

    Args:
        value, units, kept: the value, its units and its interval
        spread: its variation in words, which counts units if the value is a share
    """
    if len(units) < 2:
        return kept if not units else None
    counted = (spread or "").startswith(f"{sum(units):g} of {len(units)} ")
    if set(units) <= {0, 1} and (counted or not all_equal(units)):
        return share(int(sum(units)), len(units))
    return student(units, value) if len(units) < FEW else None if all_equal(units) else kept
