"""How well methods and controls rank the units of trained and of compiled models."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product

import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.lens import landscape
from anchorlab.lens.scoring import rank_correlation
from anchorlab.models import DecoderSpec
from anchorlab.papers.truth.methods.ranking import CONTROLS, METHODS, Ranked, ranked, split_of
from anchorlab.studies.kit import at_end
from anchorlab.tasks import Task
from anchorlab.theory.compiled import SELECTIVE, SOFT, compiled
from anchorlab.training import Recipe, TrainedRun

ALL = (*METHODS, *CONTROLS)


@dataclass(frozen=True)
class Setting:
    """What a profile trains and ranks.

    Fields
        tasks: the tasks of the trained models
        model, recipe: of all trained models
        compiled: the names of the compiled models
        pairs, sequences: of `ranked`
        seeds: the members on each task
    """

    tasks: tuple[Task, ...]
    model: DecoderSpec
    recipe: Recipe
    compiled: tuple[str, ...]
    pairs: int
    sequences: int
    seeds: int


def label_of(task: Task) -> str:
    """Return a task's name without its family."""
    return task.name.partition("/")[2]


@dataclass(frozen=True)
class Scored:
    """How well methods and controls, in the order of `ALL`, rank the units of trained and of compiled models.

    Fields
        tasks: of the trained members, `[task]`
        trained: one `Ranked` for each task, of all members
        models: the name and the variant of each compiled model
        written: one `Ranked` for each compiled model
        early: `[seed task]`, the rank correlation of a member's Shapley values, by size, at the end of training with
            those when half of its loss had gone
        accuracy: `[seed task]`, of the trained members at the end
    """

    tasks: tuple[str, ...]
    trained: tuple[Ranked, ...]
    models: tuple[tuple[str, str], ...]
    written: tuple[Ranked, ...]
    early: Float[Tensor, "seed task"]
    accuracy: Float[Tensor, "seed task"]

    @cached_property
    def skill(self) -> Float[Tensor, "seed task method"]:
        """`Ranked.skill` of the trained members."""
        return torch.stack([one.skill for one in self.trained], dim=1)

    @cached_property
    def skill_of_compiled(self) -> Float[Tensor, "model method"]:
        """`Ranked.skill` of the compiled models."""
        return torch.cat([one.skill for one in self.written])

    def column(self, name: str) -> Float[Tensor, "seed task method"]:
        """Return a column of `agreement` for the trained members."""
        return torch.stack([one.column(name) for one in self.trained], dim=1)

    def of(self, method: str) -> Float[Tensor, "seed"]:
        """Return the skill of a method or control on each seed, mean over tasks."""
        return self.skill[..., ALL.index(method)].nanmean(dim=1)


def see(runs: Sequence[TrainedRun], setting: Setting) -> Scored:
    """Rank the units of the runs' members and of the compiled models."""
    sizes = setting.pairs, setting.sequences
    trained = [ranked(run.ensemble(), run.experiment.task, *sizes, seed) for seed, run in enumerate(runs)]
    return Scored(
        tuple(label_of(run.experiment.task) for run in runs),
        tuple(trained),
        tuple(product(setting.compiled, SELECTIVE)),
        _written(setting.compiled, *sizes),
        torch.stack([_early(run, one, setting) for run, one in zip(runs, trained, strict=True)], dim=1),
        torch.stack([at_end(run, split_of(run.experiment.task), "accuracy").double() for run in runs], dim=1),
    )


@lru_cache(maxsize=1)  # the control reads the same
def _written(names: tuple[str, ...], pairs: int, sequences: int) -> tuple[Ranked, ...]:
    """Return what is said of every variant of some compiled models."""
    made = [compiled(*one, rotated=True, sharpness=SOFT) for one in product(names, SELECTIVE)]
    return tuple(ranked(one.ensemble, one.task, pairs, sequences, seed) for seed, one in enumerate(made))


def half_way(run: TrainedRun) -> list[int]:
    """Return for each member the first checkpoint at which half of the loss has gone that it loses in training."""
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
    """Return the rank correlation of each member's Shapley values half way with its last ones."""
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
