"""Mixed depths: what questions of every depth teach, where each asks for one symbol.

The implicit curriculum asks every query for the whole chain. Text does not: each of its questions asks for one thing,
and questions differ in depth. Here each sequence asks for the symbol of one step, drawn at random. Models trained on
this mixture are compared with models whose sequences all ask for the last symbol.

Source: stacked attention heads, section 10.2 ("a very diverse set of tasks with varying levels of difficulty").
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from anchorlab.findings import LineFigure, Reference, Table, at_least
from anchorlab.lens import first_crossing
from anchorlab.papers.retrieval import settings
from anchorlab.papers.retrieval.chain_order import in_order
from anchorlab.studies import SEARCHED, Measurement, Profile, Reading, Study, claim, measures_in, over, reading
from anchorlab.studies.kit import MEAN_AND_RANGE, along, column_table, curves_against
from anchorlab.studies.readings import of_first
from anchorlab.tasks import task
from anchorlab.tasks.retrieval import MixedRetrieval
from anchorlab.training import Experiment, TrainedRun

RETRIEVED = settings.RETRIEVED / settings.GUESSING
"""A symbol counts as retrieved below this multiple of the loss of guessing, as in section 7.2 for four chains."""

FAILED = 0.7 / settings.GUESSING
"""The multiple of the loss of guessing above which a model has learned nothing (section 7.2)."""

MIXED, ALONE = "mixed depths", "the end alone"


def _mixed(base: Experiment, chains: int) -> Experiment:
    fields = {name: getattr(base.task, name) for name in ("steps", "features", "frequencies")}
    return replace(base, task=task("retrieval/mixed", chains=chains, **fields))


def _quick() -> Experiment:
    base = _mixed(settings.quick(steps=2, layers=4, duration=2000, seeds=14), chains=2)
    schedule = base.recipe.schedule.replace(end=0.5)
    return replace(base, recipe=base.recipe.replace(batch=128, schedule=schedule))


QUICK = _quick()
PAPER = _mixed(settings.section_7(3), chains=4)
SMOKE = _mixed(settings.smoke(2), chains=2)


def experiments(setting: Experiment) -> dict[str, Experiment]:
    """Return a training on a mixture of depths, and one on questions for the end of the chain alone."""
    assert isinstance(setting.task, MixedRetrieval)
    end = setting.task.replace(asked_steps=(setting.task.steps,))
    return {MIXED: replace(setting, label=MIXED), ALONE: replace(setting, task=end, label=ALONE)}


class Seen(Reading):
    """Losses along training of the symbols asked for, in multiples of the loss of guessing among the chains."""

    steps = of_first(lambda run: along(run, "test", "loss")[0])  # the optimiser steps at which losses are evaluated

    @reading
    def mixed(self) -> Float[Tensor, "member symbol step"]:
        """The loss of each symbol in models trained on the mixture."""
        run = self.runs[MIXED]
        losses = [along(run, "test", "loss", group=f"step {one}")[1] for one in settings.retrieval_of(run).asked]
        return torch.stack(losses, dim=1) / _guessing(run)

    @reading
    def alone(self) -> Float[Tensor, "member step"]:
        """The loss of the chain's end in models that are asked for nothing else."""
        run = self.runs[ALONE]
        return along(run, "test", "loss")[1] / _guessing(run)

    @property
    def learned(self) -> Bool[Tensor, "member"]:
        """Which models retrieve the chain's end after training on the mixture."""
        return self.mixed[:, -1, -1] < RETRIEVED


def _guessing(run: TrainedRun) -> float:
    """Return the loss of a model that knows which symbols a step has, but not which chain is asked for."""
    return 1 - 1 / settings.retrieval_of(run).chains


@claim("section 10.2", "one property is incredibly important: a diverse set of tasks; no value", at_least(0.2))
def mixture_teaches_end(seen: Seen) -> Float[Tensor, "seed"]:
    """Training on questions of every depth teaches the deepest; training on as many of the deepest alone does not.

    Share of models that retrieve the chain's end after training on mixed depths minus that after training on questions
    for the end alone: loss below {RETRIEVED:.2f} of guessing among the chains.
    """
    return seen.learned.float() - (seen.alone[:, -1] < RETRIEVED).float()


@claim("section 10.2", "without the curriculum no run learns (section 7.2)", at_least(0.8))
def end_alone_fails(seen: Seen) -> Bool[Tensor, "seed"] | None:
    """Questions for the end alone teach nothing.

    Share of models whose final loss is above {FAILED:.2f} of guessing among the chains; judged only if some model
    retrieves the end after training on mixed depths.
    """
    return seen.alone[:, -1] > FAILED if bool(seen.learned.any()) else None


@claim("section 10.2", "tasks of increasing complexity, heads one by one", at_least(0.8))
def nearer_first(seen: Seen) -> Measurement:
    """Shallow questions are learned before deep ones.

    Share of models, of those that retrieve any symbol, in which losses under mixed depths fall below {RETRIEVED:.2f} of
    guessing in chain order; symbols never retrieved come last, and times closer than two evaluations are ties.
    """
    members, symbols, _ = seen.mixed.shape
    falls = first_crossing(seen.steps, seen.mixed.flatten(0, 1), RETRIEVED, falling=True)
    times = falls.nan_to_num(nan=torch.inf).reshape(members, symbols)
    ordered = in_order(times[times.isfinite().any(dim=1)], apart=max(np.diff(seen.steps).tolist()))
    return over((ordered == 1)[ordered.isfinite()], "models that retrieve a symbol")


def _curves(seen: Seen) -> LineFigure:
    losses: Mapping[str, Tensor] = {
        **{f"x_{one + 1}, mixed depths": seen.mixed[:, one] for one in range(seen.mixed.shape[1])},
        f"x_{seen.mixed.shape[1]} alone": seen.alone,
    }
    return curves_against(
        "Loss of the symbol asked for along training",
        seen.steps,
        losses,
        x_label="step",
        y_label="loss / loss of guessing",
        caption=f"On fresh sequences, relative to guessing among the chains. {MEAN_AND_RANGE}",
        y_range=(0.0, 1.05),
        references=[Reference("retrieved", RETRIEVED)],
    )


def _table(seen: Seen) -> Table:
    columns = {f"x_{one + 1}, mixed": seen.mixed[:, one, -1] for one in range(seen.mixed.shape[1])}
    return column_table(
        "Seed by seed",
        "Losses at the end of training, in multiples of the loss of guessing among the chains.",
        {"seed": seen.last.experiment.members.seeds, **columns, "end alone": seen.alone[:, -1]},
    )


STUDY = Study(
    "retrieval/mixture",
    __doc__,
    measures_in(__name__),
    own=True,
    trains=experiments,
    reads=Seen,
    draws=(_curves, _table),
    profiles={
        "quick": Profile(
            QUICK,
            "The paper trains no mixture. D = 2, N = 2 and K = 8; initial scale 0.15; position vectors of eight "
            "neighbours nearly orthogonal; the learning rate falls to half.",
        ),
        "paper": Profile(
            PAPER,
            "The setting of section 7.1 with a mixture of depths in place of the implicit curriculum, which the paper "
            f"does not train. {settings.OUR_CHOICES}",
        ),
    },
    smoke=SMOKE,
    chosen_on=SEARCHED,
)
