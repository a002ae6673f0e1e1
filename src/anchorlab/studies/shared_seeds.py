"""Measurements over conditions that share seeds or questions: each seed is one unit, however often it is measured."""

from math import isfinite

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from anchorlab.studies.claim import Measurement, over, spread
from anchorlab.studies.interval import Statistic, interval


def over_shared(
    rows: Shaped[Tensor, "seed *condition"], taken: Statistic, of: str = "seeds", detail: str = ""
) -> Measurement:
    """Return the measurement of `taken` over seeds, such as a ratio of the means of two conditions.

    The units are `taken` of each seed alone, without values that are not finite. The interval is as in
    `anchorlab.studies.interval`, over whole seeds: a seed's values in all conditions stay together.

    Args:
        rows: the values of each seed, or other unit, in each condition; empty for not measured
        taken: reduces rows `[seed *condition]`, for any number of seeds, to one number
        of, detail: as in `over`
    """
    if not len(rows):
        return Measurement(None, detail=detail)
    values = rows.double()
    value = float(taken(values))
    units = [float(taken(values[[seed]])) for seed in range(len(values))]
    units = [unit for unit in units if isfinite(unit)]
    within = interval(values, taken) if isfinite(value) else None
    return Measurement(value, spread(torch.tensor(units), of) if units else None, detail, tuple(units), within)


def mean_of_known(values: Float[Tensor, "seed *condition"]) -> Measurement:
    """Measure the mean over seeds of each seed's mean over the conditions in which its value is not NaN.

    Seeds without any value are left out.
    """
    means = values.double().flatten(1).nanmean(dim=1)
    return over(means[~means.isnan()])
