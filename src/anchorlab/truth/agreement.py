"""Compare scores of units with the truth: minimal sets that suffice, exact Shapley values and losses of subsets."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.lens import Scores
from anchorlab.lens.landscape.landscape import SHARE, Landscape
from anchorlab.rng import torch_generator

if TYPE_CHECKING:
    import polars


def agreement(scores: Scores, truth: Landscape, share: float = SHARE, seed: int = 0) -> "polars.DataFrame":
    """Compare the scores that a method gives to units with a landscape of the same members.

    Scores and Shapley values count by their absolute value, since a unit that harms also does something.

    Args:
        scores: scores of all units of the landscape, and perhaps of others
        truth: the landscape
        share: sets the threshold of minimal sets, as in `Landscape.minimal`
        seed: seeds the random rankings for `area_by_chance`

    Returns: one row per member, with the columns

    | column | |
    |---|---|
    | `method`, `member` | the method that gave the scores, and the member |
    | `area` | the area under the ROC curve against the minimal set that fits best: `nearest_area` |
    | `area_by_chance` | the mean of `area` over random rankings |
    | `correlation` | Spearman's rank correlation of scores with Shapley values: `rank_correlation` |
    | `size` | the number of units in the smallest minimal set |
    | `recovered` | the share of the effect that the `size` units with the highest scores recover: `recovered_at` |
    | `forward`, `backward` | the number of passes that the method took |
    """
    import polars

    values, sets = scores.of(truth.units), minimal_sets(truth, share)
    if len(values) != len(sets):
        raise SpecError("scores", f"have {len(values)} members, the landscape {len(sets)}", "score its own members")
    chance = nearest_area_by_chance(sets, torch_generator(seed, "rankings"))
    return polars.DataFrame({
        "method": [scores.method] * len(values),
        "member": range(len(values)),
        **{name: column.tolist() for name, column in measures(values, sets, truth, chance).items()},
        "forward": [scores.passes.forward] * len(values),
        "backward": [scores.passes.backward] * len(values),
    })  # fmt: skip


def minimal_sets(truth: Landscape, share: float = SHARE) -> list[Bool[Tensor, "set unit"]]:
    """Return each member's minimal sets as membership by unit."""
    return [torch.tensor([[unit in one for unit in truth.units] for one in own]) for own in truth.minimal(share)]


def measures(
    scores: Float[Tensor, "member unit"],
    sets: Sequence[Bool[Tensor, "_ unit"]],
    truth: Landscape,
    chance: Float[Tensor, "member"],
) -> dict[str, Shaped[Tensor, "member"]]:
    """Return the columns `area` to `recovered` of `agreement`, given the minimal sets and the area by chance."""
    values, size = scores.abs().double(), torch.stack([own.sum(dim=1).min() for own in sets])
    shapley = truth.shapley.abs().round(decimals=9)  # equal units differ by rounding
    return {
        "area": nearest_area(values, sets),
        "area_by_chance": chance,
        "correlation": rank_correlation(values, shapley),
        "size": size,
        "recovered": recovered_at(values, truth.loss, size),
    }


def area_under_curve(
    scores: Float[Tensor, "*#member unit"], positive: Bool[Tensor, "*#member unit"]
) -> Float[Tensor, "*member"]:
    """Return the area under the ROC curve: the chance that a positive unit has a higher score than a negative one.

    Ties count half, so that equal scores give 0.5. NaN without a positive or without a negative unit.
    """
    ranks, many = _ranks(scores), positive.sum(dim=-1).double()
    above = (ranks * positive).sum(dim=-1) - many * (many + 1) / 2
    return above / (many * (positive.shape[-1] - many))


def nearest_area(
    scores: Float[Tensor, "member unit"], sets: Sequence[Bool[Tensor, "_ unit"]]
) -> Float[Tensor, "member"]:
    """Return each member's area under the ROC curve against the minimal set that its scores fit best.

    A model may have many minimal circuits, and a method that finds any of them is right. The choice of the best set
    favours random rankings, too: see `nearest_area_by_chance`. NaN for a member without a set that splits the units.

    Args:
        scores: the score of every unit; high for units of the circuit
        sets: for each member its minimal sets, as membership by unit
    """
    return torch.stack([_nearest(member, own) for member, own in zip(scores, sets, strict=True)])


def nearest_area_by_chance(
    sets: Sequence[Bool[Tensor, "_ unit"]], generator: torch.Generator, draws: int = 2000
) -> Float[Tensor, "member"]:
    """Return the mean of `nearest_area` over random rankings of each member's units."""
    found = []
    for own in sets:
        random = torch.rand((draws, own.shape[-1]), generator=generator, dtype=torch.float64)
        found.append(_nearest(random, own).mean())
    return torch.stack(found)


def _nearest(scores: Float[Tensor, "*ranking unit"], sets: Bool[Tensor, "set unit"]) -> Float[Tensor, "*ranking"]:
    """Return the largest area of each ranking against any of the sets, NaN if none splits the units."""
    areas = area_under_curve(scores.unsqueeze(-2), sets)
    best = areas.nan_to_num(nan=-1.0).amax(dim=-1)
    return torch.where(best < 0, torch.nan, best)


def rank_correlation(
    scores: Float[Tensor, "*member unit"], values: Float[Tensor, "*member unit"]
) -> Float[Tensor, "*member"]:
    """Return Spearman's rank correlation over units; ties have their mean rank. NaN if either is constant."""
    first, second = (_ranks(one) - (one.shape[-1] + 1) / 2 for one in (scores, values))
    found: Tensor = (first * second).sum(dim=-1) / (first.norm(dim=-1) * second.norm(dim=-1))
    return found


def recovered_at(
    scores: Float[Tensor, "member unit"], loss: Float[Tensor, "member subset"], size: Int[Tensor, "member"]
) -> Float[Tensor, "member"]:
    """Return the share of the whole effect that the `size` units with the highest scores recover.

    0 means the loss with every unit replaced, 1 the whole model's loss; the share exceeds 1 if a removed unit did harm.
    Of units with equal scores the first are taken.

    Args:
        scores: the score of every unit
        loss: the loss of every subset, as in a `Landscape`: bit i of a subset's number says that unit i is kept
        size: the number of units that a member keeps, 0 to all
    """
    order = scores.argsort(dim=-1, descending=True, stable=True)
    kept = torch.arange(scores.shape[-1]) < size.unsqueeze(1)
    subset = torch.where(kept, 2**order, 0).sum(dim=1, keepdim=True)
    none, every = loss[:, 0], loss[:, -1]
    return (none - loss.gather(1, subset).squeeze(1)) / (none - every)


def _ranks(values: Float[Tensor, "*member unit"]) -> Float[Tensor, "*member unit"]:
    """Return the ranks of the units from 1, the lowest value, with the mean rank for ties."""
    own, other = values.double().unsqueeze(-1), values.double().unsqueeze(-2)
    ranks: Tensor = (own > other).sum(dim=-1) + ((own == other).sum(dim=-1) + 1) / 2
    return ranks.double().masked_fill(values.isnan().any(dim=-1, keepdim=True), torch.nan)
