"""Power laws fitted to measurements: the slope on logarithmic axes, with its confidence interval."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import stats

from anchorlab.errors import SpecError


@dataclass(frozen=True)
class PowerLaw:
    """y = factor x^slope; `low` and `high` are the ends of the slope's 95 % confidence interval."""

    slope: float
    low: float
    high: float
    factor: float


def fit_power_law(x: Float[np.ndarray, "point"], y: Float[np.ndarray, "point"]) -> PowerLaw:
    """Return the power law whose log y fits best against log x, by least squares.

    The confidence interval is Student's, for independent errors of equal relative size.

    Errors: `SpecError` for fewer than three points, and for values that are not positive.
    """
    if len(x) < 3:
        raise SpecError("x", f"{len(x)} points are too few for an interval", "give three or more")
    if min(x.min(), y.min()) <= 0:
        raise SpecError("y" if y.min() <= 0 else "x", "has values that are not positive", "leave them out")
    fitted = stats.linregress(np.log(x), np.log(y))
    half = float(stats.t.ppf(0.975, len(x) - 2)) * float(fitted.stderr)
    slope = float(fitted.slope)
    return PowerLaw(slope, slope - half, slope + half, float(np.exp(fitted.intercept)))
