"""Whether a value that was measured again agrees with the published one, unit by unit."""

from dataclasses import dataclass
from math import isclose, isnan, sqrt
from statistics import mean, stdev
from typing import Literal

from anchorlab.findings.claims import ClaimResult
from anchorlab.findings.interval import LEVEL, Interval

Agrees = Literal["equal", "agrees", "differs", "undecided", "not published"]

EXACT = 1e-3
"""The relative difference up to which two values of an exact computation are equal."""

EQUAL = 1e-5
"""The relative difference up to which two values of one seed are equal, as expected with the same arithmetic."""


@dataclass(frozen=True)
class Comparison:
    """How a value compares with the published one.

    Fields
        word: whether the values agree
        difference: the value minus the published one, mean over units; None without a published value
        interval: its 95 % interval; None for fewer than two units, or for an exact value
    """

    word: Agrees
    difference: float | None = None
    interval: Interval | None = None


def compared(published: ClaimResult | None, here: ClaimResult) -> Comparison:
    """Compare a value with the published value of the same claim in the same setting.

    Units that are the same within rounding are `equal`. Otherwise seeds took other paths, as they do on another
    processor: the value `agrees` if the 95 % interval of the difference lies within one standard deviation between
    published units, `differs` if it lies outside, and is `undecided` if it reaches across. Two results with equally
    many units are compared unit by unit, others by Welch's interval. Values without units, and exact ones, are `equal`
    or differ.

    Source: Welch, "The generalization of Student's problem when several different population variances are involved",
        Biometrika 34, 1947.
    """
    if published is None or published.value is None or here.value is None or isnan(published.value + here.value):
        return Comparison("not published")
    before, now = published.units, here.units
    if here.claim.exact or not before or not now:
        same = isclose(published.value, here.value, rel_tol=EXACT, abs_tol=1e-9)
        return Comparison("equal" if same else "differs", here.value - published.value)
    alike = [isclose(a, b, rel_tol=EQUAL, abs_tol=1e-9) for a, b in zip(before, now, strict=False)]
    if len(before) == len(now) and all(alike):
        return Comparison("equal", here.value - published.value)
    difference = mean(now) - mean(before)
    found = _interval(before, now)
    if found is None:
        return Comparison("undecided", difference)
    spread = stdev(before)
    inside, outside = -spread <= found[0] and found[1] <= spread, found[0] > spread or found[1] < -spread
    return Comparison("agrees" if inside else "differs" if outside else "undecided", difference, found)


def _interval(before: tuple[float, ...], now: tuple[float, ...]) -> Interval | None:
    """Return the 95 % interval of the difference of two means; None below two units."""
    from scipy import special

    if min(len(before), len(now)) < 2:
        return None
    if len(before) == len(now):
        paired = [b - a for a, b in zip(before, now, strict=True)]
        error, freedom = stdev(paired) / sqrt(len(paired)), len(paired) - 1.0
    else:
        own = [stdev(units) ** 2 / len(units) for units in (before, now)]
        error = sqrt(sum(own))
        weighted = sum(one**2 / (len(units) - 1) for one, units in zip(own, (before, now), strict=True))
        freedom = error**4 / weighted if weighted else 1.0
    half = float(special.stdtrit(freedom, (1 + LEVEL) / 2)) * error
    centre = mean(now) - mean(before)
    return centre - half, centre + half
