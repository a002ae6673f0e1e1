"""One rule for the 95 % interval of a value over independent units: seeds, runs, questions.

A share has exact bounds, fewer than ten units Student's interval, and more the bootstrap's
(`anchorlab.studies.interval`). If all resamples give one value, `neighbours` gives the interval.
"""

from collections.abc import Sequence
from math import ceil, exp, isfinite, lgamma, log, log1p, sqrt
from statistics import stdev

Interval = tuple[float, float]
"""The lower and the upper end."""

Band = tuple[float | None, float | None]
"""The lowest and the highest value that accept a claim, both included; None leaves that side open."""

LEVEL = 0.95

FEW = 10
"""Below this number of units the bootstrap covers too rarely: for normal values 91 % with five, 75 % with three."""

ENOUGH = 14
"""The number of equal units that decide a claim: with 95 %, they show that at least 0.8 of all units are the same."""

ROUNDING = 1e-6
"""The relative difference up to which values are equal; float32 rounds by up to 6e-8 in each operation."""

_MANY = 1000  # units; the time of the bisection grows with them, and findings of others may have a million

_STUDENT = (12.706205, 4.302653, 3.182446, 2.776445, 2.570582, 2.446912, 2.364624, 2.306004)
"""Student's quantiles at 97.5 %, for one to eight degrees of freedom: lists of claims need not import scipy."""


def all_equal(units: Sequence[float]) -> bool:
    """Return whether all units have one value within rounding, so that their interval would have no width."""
    return max(units) - min(units) <= ROUNDING * max(map(abs, units))


def student(units: Sequence[float], value: float) -> Interval | None:
    """Return Student's interval of `value`, whose width comes from fewer than `FEW` units, the value of each alone.

    It is exact for the mean of normal values. None below two units, for equal units, and if a number is not finite.
    """
    if len(units) < 2 or not all(map(isfinite, (*units, value))) or all_equal(units):
        return None
    half = _STUDENT[len(units) - 2] * stdev(units) / sqrt(len(units))
    return value - half, value + half


def neighbours(units: Sequence[float], value: float) -> Interval | None:
    """Return the interval from the next smaller to the next larger unit, for a value that all resamples give.

    Such values are measured on a grid, such as the steps of evaluations, and are not known more precisely: a median of
    1500 between units of 1000 and 2000 may be anything between them. On a side without another unit it is as wide as
    on the other side. None for equal units, and if a number is not finite.
    """
    if not all(map(isfinite, (*units, value))) or all_equal(units):
        return None
    below = min((value - unit for unit in units if not all_equal((unit, value)) and unit < value), default=None)
    above = min((unit - value for unit in units if not all_equal((unit, value)) and unit > value), default=None)
    return value - (below or above or 0.0), value + (above or below or 0.0)


def share(passed: int, count: int) -> Interval | None:
    """Return the exact bounds of a share, `passed` of `count` units; None for no units.

    Each bound alone holds with 95 %, because a claim about a share is one-sided: 14 of 14 units show that
    at least 0.8 of all units pass.

    Source: Clopper and Pearson, "The use of confidence or fiducial limits illustrated in the case of the binomial",
        Biometrika 26, 1934.
    """
    if not count:
        return None
    if count > _MANY:
        from scipy import special

        low, high = special.betaincinv((passed, passed + 1), (count - passed + 1, count - passed), (1 - LEVEL, LEVEL))
        return round(float(low), 9) if passed else 0.0, round(float(high), 9) if passed < count else 1.0
    return _lower_bound(passed, count), round(1 - _lower_bound(count - passed, count), 9)


def _lower_bound(passed: int, count: int) -> float:
    """Return the share at which `passed` or more units pass with a probability of 5 %, by bisection."""
    low, high = 0.0, 1.0
    ways = [lgamma(count + 1) - lgamma(k + 1) - lgamma(count - k + 1) for k in range(passed, count + 1)]
    while passed and high - low > 1e-12:
        middle = (low + high) / 2
        chances = (exp(each + k * log(middle) + (count - k) * log1p(-middle)) for k, each in enumerate(ways, passed))
        low, high = (low, middle) if sum(chances) > 1 - LEVEL else (middle, high)
    return round(low, 9)  # the same on every processor


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
        spread: its variation in words, which counts units if the value is a share; None for units 0 and 1 of a share
    """
    if len(units) < 2:
        return kept if not units else None
    counted = (spread or "").startswith(f"{sum(units):g} of {len(units)} ")
    if set(units) <= {0, 1} and (counted or not (spread or all_equal(units))):
        return share(int(sum(units)), len(units))
    if len(units) < FEW:
        return student(units, value)
    no_width = kept is not None and kept[0] == kept[1]
    return None if all_equal(units) else neighbours(units, value) if no_width else kept
