"""The 95 % interval of any statistic over independent units, by the rule of `anchorlab.findings.interval`."""

from collections.abc import Callable
from math import sqrt
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped
from torch import Tensor

from anchorlab.findings.interval import FEW, LEVEL, Interval, all_equal, neighbours, student

Statistic = Callable[[Float[Tensor, "unit *value"]], Any]
"""A function that reduces units to one number, such as `torch.median`."""

RESAMPLES = 10_000
SEED = 0
"""The seed of all resampling, so that the same units give the same interval."""

_AT_ONCE = 2**20  # values that are resampled at once


def interval(units: Shaped[Tensor, "unit *value"], taken: Statistic | None = None) -> Interval | None:
    """Return the 95 % interval of `taken` of the units, by default their mean.

    A unit's own value is `taken` of this unit alone. Below `FEW` units the interval is Student's: the value plus and
    minus t times the standard error of the own values. Otherwise it is the bootstrap's, or, if all resamples give one
    value, that of `neighbours`. None for fewer than two units, for equal own values, whose interval would have no
    width, and if a value is not finite.

    Args:
        units: [unit], one value for each independent unit, or [unit value] if `taken` reads several of each
        taken: reduces any number of units to one number
    """
    values = units.double()
    own = values.tolist() if taken is None else [float(taken(one)) for one in values.unsqueeze(1)]
    value = float(values.mean() if taken is None else taken(values)) if own else 0.0
    if len(own) < FEW:
        return student(own, value)
    found = None if all_equal(own) else bootstrap(values, taken)
    return neighbours(own, value) if found is not None and found[0] == found[1] else found


def bootstrap(units: Shaped[Tensor, "unit *value"], taken: Statistic | None = None) -> Interval | None:
    """Return the bootstrap interval of `taken` of two or more units; None if a resampled value is not finite.

    The ends are percentiles of `RESAMPLES` resamples. The 95 % percentile interval is slightly too short; a higher
    level compensates.

    Args:
        units, taken: as in `interval`

    Source: Hesterberg, "What teachers should know about the bootstrap", The American Statistician 69, 2015, section 4.4
        (expanded percentile interval).
    """
    from scipy import stats

    count = len(units)
    level = 1 - 2 * stats.norm.cdf(-sqrt(count / (count - 1)) * stats.t.ppf((1 + LEVEL) / 2, count - 1))
    values = units.double()
    random, found = np.random.default_rng(SEED), list[float]()
    at_once = max(1, _AT_ONCE // count)
    for begin in range(0, RESAMPLES, at_once):
        drawn = random.integers(count, size=(min(at_once, RESAMPLES - begin), count))
        if taken is None:
            found += values[drawn].mean(dim=1).tolist()
        else:
            found += [float(taken(one)) for one in values[drawn]]
    if not np.isfinite(found).all():
        return None
    low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
