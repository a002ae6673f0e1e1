"""Measurements over conditions that share their seeds or questions: each is one unit, however often measured."""

from math import isfinite

import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.studies.claim import Measurement, over, spread
from anchorlab.studies.interval import Statistic, bootstrap


def over_shared(
    rows: Float[Tensor, "seed *condition"], taken: Statistic, of: str = "seeds", detail: str = ""
) -> Measurement:
    """Return a measurement of what `taken` makes of several seeds, such as a ratio of the means of two conditions.

    Its units are what `taken` makes of each seed alone, without seeds of which it makes nothing finite. Its interval
    draws seeds whole, so that what one seed gives in all conditions stays together; there is none where the value of a
    draw is not finite.

    Args:
        rows: what each seed, or other unit, gives in each condition; empty for not measured
        taken: what makes one number of rows `[seed *condition]`, for any number of seeds
        of: what there is one row of, in the plural
        detail: anything else worth knowing, in words
    """
    if not len(rows):
        return Measurement(None, detail=detail)
    values = rows.double()
    value = float(taken(values))
    units = [float(taken(values[[seed]])) for seed in range(len(values))]
    units = [unit for unit in units if isfinite(unit)]
    interval = bootstrap(values, taken) if isfinite(value) else None
    if interval is not None and not all(map(isfinite, interval)):
        interval = None
    return Measurement(value, spread(torch.tensor(units), of) if units else None, detail, tuple(units), interval)


def mean_of_known(values: Float[Tensor, "seed *condition"], of: str = "seeds", detail: str = "") -> Measurement:
    """Return a measurement of each seed's mean over the conditions in which it has a value; NaN where it has none.

    Seeds without any value are left out.
    """
    means = values.double().flatten(1).nanmean(dim=1)
    known = means[~means.isnan()]
    return over(known, of, detail=detail)
