"""The 95 % interval of a value over independent units: seeds, runs, questions."""

from collections.abc import Callable
from math import sqrt
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped
from torch import Tensor

Interval = tuple[float, float]
"""The lower and the upper end."""

Statistic = Callable[[Float[Tensor, "unit *value"]], Any]
"""What makes one number of units, such as `torch.min`."""

RESAMPLES = 10_000
SEED = 0
"""The seed of all resampling, so that the same units give the same interval."""

_LEVEL = 0.95
_AT_ONCE = 2**20  # values that are resampled at once


def bootstrap(units: Shaped[Tensor, "unit *value"], taken: Statistic | None = None) -> Interval | None:
    """Return the bootstrap interval of `taken` of the units, by default their mean; None below two units.

    The ends are percentiles of `RESAMPLES` resamples. With few units, the 95 % percentile interval is too short; a
    higher level compensates, so that the interval of a mean is close to Student's from six units on. It cannot leave
    the range of the resampled values, so that it covers less than 95 % over fewer: of normal values 50 % over two
    units, 75 % over three, 88 % over four and 91 % over five.

    Args:
        units: [unit], one finite value for each independent unit, or [unit value] if `taken` reads several of each
        taken: reduces resampled units to one number

    Source: Hesterberg, "What teachers should know about the bootstrap", The American Statistician 69, 2015, section 4.4
        (expanded percentile interval).
    """
    from scipy import stats

    count = len(units)
    if count < 2:
        return None
    level = 1 - 2 * stats.norm.cdf(-sqrt(count / (count - 1)) * stats.t.ppf((1 + _LEVEL) / 2, count - 1))
    values = units.double()
    random, found = np.random.default_rng(SEED), list[float]()
    at_once = max(1, _AT_ONCE // count)
    for begin in range(0, RESAMPLES, at_once):
        drawn = random.integers(count, size=(min(at_once, RESAMPLES - begin), count))
        if taken is None:
            found += values[drawn].mean(dim=1).tolist()
        elif count**count < RESAMPLES:  # few units are drawn in the same order again and again
            different, which = np.unique(drawn, axis=0, return_inverse=True)
            found += np.array([float(taken(one)) for one in values[different]])[which.ravel()].tolist()
        else:
            found += [float(taken(one)) for one in values[drawn]]
    low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def binomial(passed: int, count: int) -> Interval | None:
    """Return the exact interval (Clopper and Pearson, 1934) of a share, `passed` of `count` units; None for none."""
    from scipy import stats

    if not count:
        return None
    found = stats.binomtest(passed, count).proportion_ci(_LEVEL, method="exact")
    return float(found.low), float(found.high)
