"""How well methods and controls rank the units of trained and of compiled models."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.lens import landscape
from anchorlab.models import DecoderSpec
from anchorlab.rng import torch_generator
from anchorlab.studies.kit import at_end
from anchorlab.studies.readings import Reading, reading
from anchorlab.tasks import Task
from anchorlab.training import Recipe, TrainedRun
from anchorlab.truth.agreement import rank_correlation
from anchorlab.truth.models import SOFT, compiled, reordered
from anchorlab.truth.ranked import BY_LOSS, CONTROLS, FAMILIES, METHODS, OF_HEADS, ByTruth, Ranked, ranked, split_of

ALL = (*METHODS, *CONTROLS)
ON_HEADS = (*ALL, *OF_HEADS)


class Population(NamedTuple):
    """Members trained on one task, of one shape."""

    task: Task
    layers: int
    heads: int

    @property
    def label(self) -> str:
        """The task's name without its family, with layers and heads: `identity, 3 x 2`."""
        return f"{self.task.name.partition('/')[2]}, {self.layers} x {self.heads}"


@dataclass(frozen=True)
class Setting:
    """What a profile trains and ranks.

    Fields
        populations: tasks and shapes of the trained models
        model, recipe: the model and recipe of all populations, except that each has its own shape
        compiled, variants: the names of the compiled models, and the variants of each
        pairs, sequences: as for `ranked`
        seeds: the number of members of each population
    """

    populations: tuple[Population, ...]
    model: DecoderSpec
    recipe: Recipe
    compiled: tuple[str, ...]
    variants: tuple[str, ...]
    pairs: int
    sequences: int
    seeds: int


def _ranked(of: str, truth: str) -> cached_property[Sequence[Ranked]]:
    """Return a reading of the rankings of each population or compiled model against one truth of `ByTruth`."""
    return reading(lambda seen: [getattr(one, truth) for one in getattr(seen, of)])


def _skill(of: str) -> cached_property[Float[Tensor, "seed population method"]]:
    """Return a reading of `Ranked.skill` of the trained members, against one truth."""
    return reading(lambda seen: torch.stack([one.skill for one in getattr(seen, of)], dim=1))


def _skill_of_compiled(of: str) -> cached_property[Float[Tensor, "model method"]]:
    """Return a reading of `Ranked.skill` of the compiled models, against one truth."""
    return reading(lambda seen: torch.cat([one.skill for one in getattr(seen, of)]))


class Seen(Reading):
    """How well methods and controls, in the order of `ALL`, rank the units of trained and of compiled models."""

    trained = _ranked("rankings", "whole")  # of each population, against units replaced by their mean
    resampled = _ranked("rankings", "resampled")  # against units replaced by another sequence's
    heads = _ranked("rankings", "heads")  # against heads alone, with the methods of `OF_HEADS` last
    written = _ranked("rankings_of_compiled", "whole")  # of each compiled model
    written_heads = _ranked("rankings_of_compiled", "heads")

    skill = _skill("trained")
    skill_if_resampled = _skill("resampled")
    skill_on_heads = _skill("heads")
    skill_of_compiled = _skill_of_compiled("written")
    skill_on_heads_of_compiled = _skill_of_compiled("written_heads")

    @reading
    def populations(self) -> tuple[Population, ...]:
        """The populations of the trained members."""
        populations: tuple[Population, ...] = self.setting.populations
        return populations

    @reading
    def models(self) -> tuple[tuple[str, str], ...]:
        """The name and the variant of each compiled model."""
        return tuple(product(self.setting.compiled, self.setting.variants))

    @reading
    def rankings(self) -> Sequence[ByTruth]:
        """The rankings of the members of each population, against each truth."""
        sizes = self.setting.pairs, self.setting.sequences
        runs = enumerate(self.runs.values())
        return [ranked(run.ensemble(), run.experiment.task, *sizes, seed) for seed, run in runs]

    @reading
    def rankings_of_compiled(self) -> Sequence[ByTruth]:
        """The rankings of each compiled model, against each truth."""
        return _of_compiled(self.models, self.setting.pairs, self.setting.sequences)

    @reading
    def early(self) -> Float[Tensor, "seed population"]:
        """The rank correlation between the sizes of a member's Shapley values half way and at the end of training.

        Half way is the first checkpoint at which the loss has fallen by half of its total fall in training.
        """
        both = zip(self.runs.values(), self.trained, strict=True)
        return torch.stack([_early(run, one, self.setting) for run, one in both], dim=1)

    @reading
    def accuracy(self) -> Float[Tensor, "seed population"]:
        """The accuracy of the trained members at the end."""
        found = [at_end(run, split_of(run.experiment.task), "accuracy").double() for run in self.runs.values()]
        return torch.stack(found, dim=1)

    def of(self, method: str, if_resampled: bool = False) -> Float[Tensor, "seed"]:
        """Return the skill of a method or control on each seed, mean over populations."""
        skill = self.skill_if_resampled if if_resampled else self.skill
        return skill[..., ALL.index(method)].nanmean(dim=1)

    def best(self, family: str, by_loss: bool | None = None) -> Float[Tensor, "seed"]:
        """Return the skill of a method's best form on each seed, as in `of`; forms differ in baseline and metric."""
        return best(self.skill.nanmean(dim=1), family, by_loss)


def best(skill: Float[Tensor, "*unit method"], family: str, by_loss: bool | None = None) -> Float[Tensor, "*unit"]:
    """Return the highest skill among a method's forms: all (None), those by the loss (True), or the others (False)."""
    forms = [form for form in FAMILIES[family] if by_loss in (None, form.endswith(BY_LOSS))]
    return skill[..., [ALL.index(form) for form in forms]].amax(dim=-1)


@lru_cache(maxsize=1)  # the control reads the same
def _of_compiled(models: tuple[tuple[str, str], ...], pairs: int, sequences: int) -> tuple[ByTruth, ...]:
    """Return the rankings of compiled models, given as name and variant, with each layer's heads in random order."""
    found = []
    for seed, one in enumerate(models):
        made = compiled(*one, rotated=True, sharpness=SOFT)
        made = reordered(made, torch_generator(seed, "heads", *one))
        found.append(ranked(made.ensemble, made.task, pairs, sequences, seed))
    return tuple(found)


def half_way(run: TrainedRun) -> list[int]:
    """Return each member's first checkpoint at which its loss has fallen by half of its total fall in training."""
    table = run.metric("loss", split_of(run.experiment.task))
    found = []
    for member in range(len(run.experiment.members)):
        own = table.filter(table["member"] == member)
        steps, losses = own["step"].to_list(), own["value"].to_list()
        middle = (losses[0] + losses[-1]) / 2
        reached = next((step for step, loss in zip(steps, losses, strict=True) if loss <= middle), steps[-1])
        found.append(next(step for step in run.checkpoints if step >= reached))
    return found


def _early(run: TrainedRun, end: Ranked, setting: Setting) -> Float[Tensor, "seed"]:
    """Return the rank correlation between each member's Shapley values half way and at the end of training."""
    at = half_way(run)
    found = torch.empty_like(end.truth.shapley)
    for step in sorted(set(at)):
        members = [member for member, own in enumerate(at) if own == step]
        then = landscape(
            run.ensemble(step).select(members),
            "all",
            task=run.experiment.task,
            split=split_of(run.experiment.task),
            sequences=setting.sequences,
            progress=False,
        )
        found[members] = then.shapley
    return rank_correlation(found.abs(), end.truth.shapley.abs())
