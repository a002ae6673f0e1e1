"""Fit power laws to measurements: the slope on logarithmic axes, with its confidence interval."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Num
from scipy.special import stdtrit

from anchorlab.errors import SpecError


@dataclass(frozen=True)
class PowerLaw:
    """y = factor x^slope; `low` and `high` are the ends of the slope's 95 % confidence interval."""

    slope: float
    low: float
    high: float
    factor: float

    def apart(self, slope: float) -> tuple[float, float]:
        """Return the smallest and the largest distance from `slope` to a point of the confidence interval."""
        ends = abs(self.low - slope), abs(self.high - slope)
        return (0.0 if self.low <= slope <= self.high else min(ends)), max(ends)


def fit_power_law(
    x: Num[np.ndarray, "point"] | Sequence[float],
    y: Num[np.ndarray, "point"] | Sequence[float],
    correction: float | None = None,
) -> PowerLaw:
    """Fit a power law by least squares of log y against log x.

    With a `correction` p < 0, log y = log factor + slope log x + d x^p is fitted: the slope is then the limit for large
    x, which is approached as x^p. The confidence interval is Student's, for independent errors of equal relative size.

    Errors: `SpecError` for fewer than three points, or four with a correction, and for values not positive and finite.
    """
    if len(x) < (3 if correction is None else 4):
        raise SpecError("x", f"{len(x)} points are too few for an interval", "give three or more, four to correct")
    for name, values in (("x", x), ("y", y)):
        if not 0 < np.min(values) <= np.max(values) < np.inf:  # or NaN
            raise SpecError(name, "has values that are not positive and finite", "leave them out")
    columns = [np.ones(len(x)), np.log(x), *([] if correction is None else [np.float_power(x, correction)])]
    design, free = np.stack(columns, axis=1), len(x) - len(columns)
    fitted = np.linalg.lstsq(design, np.log(y))[0]
    variance = float(np.square(np.log(y) - design @ fitted).sum()) / free
    error = float(np.sqrt(variance * np.linalg.inv(design.T @ design)[1, 1]))
    half, slope = float(stdtrit(free, 0.975)) * error, float(fitted[1])
    return PowerLaw(slope, slope - half, slope + half, float(np.exp(fitted[0])))
