"""Score a method's rankings against what is known of each model."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from anchorlab.lens.scoring.agreement import (
    nearest_area,
    nearest_area_by_chance,
    rank_correlation,
    recovered_at,
)
from anchorlab.rankings.file import Rankings
from anchorlab.rankings.known import Known
from anchorlab.rng import torch_generator
from anchorlab.studies.interval import bootstrap

if TYPE_CHECKING:
    import polars

MEASURES = ("area", "area_by_chance", "correlation", "recovered")
"""The columns whose means are of interest."""


def score_rankings(rankings: Rankings, known: Mapping[str, Known]) -> "polars.DataFrame":
    """Compare rankings with the minimal sets, the Shapley values and the losses of each model.

    Scores count by their size, as in `agreement`, whose columns these are; the minimal sets are those known by
    construction.

    Returns: one row per model, with the columns `model`, `area`, `area_by_chance`, `correlation`, `size`, `recovered`.
    """
    import polars

    return polars.DataFrame([_row(model, rankings.scores[model], one) for model, one in known.items()])


def _row(model: str, scores: Mapping[str, float], known: Known) -> dict[str, object]:
    truth, units = known.landscape, known.units
    values = torch.tensor([[scores[unit] for unit in units]], dtype=torch.float64).abs()
    sets = [torch.tensor([[unit in one for unit in units] for one in known.truth.minimal])]
    size = sets[0].sum(dim=1).min().reshape(1)
    shapley = truth.shapley.abs().round(decimals=9)  # equal units differ by rounding
    return {
        "model": model,
        "area": nearest_area(values, sets).item(),
        "area_by_chance": nearest_area_by_chance(sets, torch_generator(0, "rankings")).item(),
        "correlation": rank_correlation(values, shapley).item(),
        "size": int(size),
        "recovered": recovered_at(values, truth.loss, size).item(),
    }


def means(scored: "polars.DataFrame") -> dict[str, tuple[float, float | None, float | None]]:
    """Return the mean of each measure over models, and the ends of its 95 % bootstrap interval.

    Models without a value are left out, such as the correlation of a ranking with equal scores for all units. Below two
    models there is no interval.
    """
    found = {}
    for name in MEASURES:
        values = torch.tensor([value for value in scored[name] if value == value], dtype=torch.float64)
        low, high = bootstrap(values) or (None, None)
        found[name] = (values.mean().item(), low, high)
    return found
