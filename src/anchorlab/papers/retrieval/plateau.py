"""Retrieval: leaving the plateau of guessing.

Guessing among the chains gives a loss of 0.75, where models stay for a long time. Which choices decide whether and when
they leave?

Source: stacked attention heads, section 7; the search for a setting small enough for two cores is ours.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.findings import LineFigure, Table, at_least, at_most
from anchorlab.papers.retrieval import chain_order
from anchorlab.papers.retrieval.settings import RETRIEVED, nearly_orthogonal, orthogonal, quick, section_7, smoke
from anchorlab.studies import SEARCHED, Measurement, Profile, Study, claim, kit, measures_in, over, precondition
from anchorlab.studies.readings import Reading, at_end, reading
from anchorlab.training import AdamW, Experiment, TrainedRun

DISTINCT = tuple(2 * math.pi / 29 * turn for turn in (1, 3, 7, 12))
"""Frequencies for K = 8 under which no two of 28 position vectors are alike: their cosines are at most 0.24."""


@dataclass(frozen=True)
class Change:
    """One changed choice: other fields of the task, the model or the recipe, with chains of three steps if `longer`."""

    label: str
    task: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)
    recipe: Mapping[str, Any] = field(default_factory=dict)
    longer: bool = False


def _adam(learning_rate: float = 3e-3, weight_decay: float = 0.1) -> dict[str, Any]:
    return {"optimiser": AdamW(learning_rate=learning_rate, weight_decay=weight_decay)}


CHANGES = (
    Change("K = 4", task={"features": 4, "frequencies": nearly_orthogonal(4)}),
    Change("K = 16", task={"features": 16, "frequencies": nearly_orthogonal(16)}),
    Change("K = 4 and rotary frequencies, as in the paper", task={"features": 4, "frequencies": ()}),
    Change("rotary frequencies 10000^(-2i/K)", task={"frequencies": ()}),
    Change("positions orthogonal, repeated after 16", task={"frequencies": orthogonal(8)}),
    Change("positions all told apart", task={"frequencies": DISTINCT}),
    Change("one position for both members of a pair", task={"positions": "pair"}),
    Change("initial scale 0.02, GPT-2's", model={"initial_scale": 0.02}),
    Change("initial scale 0.08", model={"initial_scale": 0.08}),
    Change("initial scale 0.3", model={"initial_scale": 0.3}),
    Change("residual maps not scaled down", model={"residual_scaling": False}),
    Change("key maps start as query maps", model={"keys_like_queries": True}),
    Change("no causal mask", model={"mask": False}),
    Change("2 layers", model={"layers": 2}),
    Change("3 layers", model={"layers": 3}),
    Change("8 layers", model={"layers": 8}),
    Change("4 heads in a layer", model={"heads": 4}),
    Change("feed-forward layers", model={"feed_forward": True}),
    Change("width 32", model={"width": 32}),
    Change("width 128", model={"width": 128}),
    Change("learning rate 3e-4", recipe=_adam(3e-4)),
    Change("learning rate 1e-3, as in the paper", recipe=_adam(1e-3)),
    Change("learning rate 1e-2", recipe=_adam(1e-2)),
    Change("no weight decay", recipe=_adam(weight_decay=0.0)),
    Change("batch 16", recipe={"batch": 16}),
    Change("batch 128", recipe={"batch": 128}),
    Change("3 steps: positions orthogonal, repeated after 16", task={"frequencies": orthogonal(8)}, longer=True),
    Change("3 steps: positions all told apart", task={"frequencies": DISTINCT}, longer=True),
    Change("3 steps: one position for both members of a pair", task={"positions": "pair"}, longer=True),
    Change("3 steps: K = 16", task={"features": 16, "frequencies": nearly_orthogonal(16)}, longer=True),
    Change("3 steps: 4 layers", model={"layers": 4}, longer=True),
    Change("3 steps: 8 layers", model={"layers": 8}, longer=True),
    Change("3 steps: feed-forward layers", model={"feed_forward": True}, longer=True),
)
"""The changes of quick profiles, all with the curriculum."""


@dataclass(frozen=True)
class Setting:
    """The experiments on chains of two and three steps with the curriculum, and the changes to try."""

    two: Experiment
    three: Experiment
    changes: tuple[Change, ...] = CHANGES


QUICK = Setting(quick(2, 4, 800, seeds=2), quick(3, 6, 1400, seeds=2))
PAPER = Setting(section_7(2), section_7(3), changes=())
SMOKE = Setting(smoke(2), smoke(3), tuple(one for one in CHANGES if one.label in ("K = 4", "3 steps: 4 layers")))


def experiments(setting: Setting) -> dict[str, Experiment]:
    """Return the experiments of two and three steps with the curriculum, the same without it, then each change."""
    plain = [
        Change(_plain(steps, curriculum), {"implicit_curriculum": curriculum == "with"}, longer=steps == 3)
        for curriculum in ("with", "no")
        for steps in (2, 3)
    ]
    return {
        change.label: replace(
            base,
            task=base.task.replace(**change.task),
            model=base.model.replace(**change.model),
            recipe=base.recipe.replace(**change.recipe),
            label=change.label,
        )
        for change in (*plain, *setting.changes)
        for base in [setting.three if change.longer else setting.two]
    }


def _plain(steps: int, curriculum: str) -> str:
    return f"{steps} steps, {curriculum} curriculum"


class Seen(Reading):
    """Final losses on fresh sequences."""

    loss = at_end("test", "loss")

    @reading
    def having(self) -> Float[Tensor, "length member"]:
        """The losses on two and three steps with the curriculum, without any change."""
        return torch.stack([self.loss[_plain(steps, "with")] for steps in (2, 3)])

    @reading
    def lacking(self) -> Float[Tensor, "length member"]:
        """The losses on two and three steps without the curriculum, and without any other change."""
        return torch.stack([self.loss[_plain(steps, "no")] for steps in (2, 3)])


@precondition("section 7.2", "essential for successful learning", at_most(0.1), of=("without-it-fails",))
def curriculum_learns(seen: Seen) -> Measurement:
    """With the implicit curriculum the whole chain is learned.

    Final loss with the curriculum, highest over all models on two or three steps.
    """
    return over(seen.having.amax(dim=0), taken=torch.max)


@claim(
    "section 7.2",
    "implied: above 0.7 in 100 % of runs, of any depth, which `retrieval/depth` judges",
    at_least(0.7),
    own=True,
)
def without_it_fails(seen: Seen) -> Float[Tensor, "seed"] | None:
    """Without the implicit curriculum nothing is learned, all else being equal.

    Final loss without the curriculum, lowest on two or three steps, mean over seeds; judged only if models with the
    curriculum are below {RETRIEVED} on average.
    """
    return seen.lacking.amin(dim=0) if seen.having.mean() < RETRIEVED else None


def _figures(seen: Seen) -> list[LineFigure]:
    return [_figure(*(seen.runs[_plain(steps, curriculum)] for curriculum in ("with", "no"))) for steps in (2, 3)]


def _figure(having: TrainedRun, lacking: TrainedRun) -> LineFigure:
    steps, partials = chain_order.partials_along(having)
    ((last, without),) = chain_order.partials_along(lacking)[1].items()
    return chain_order.loss_curves(
        f"{len(partials)} steps, with the curriculum and without",
        steps,
        {**partials, f"{last} without the curriculum": without},
        "Partial losses on fresh sequences along training; mean and range over seeds.",
        chain_order.GUESSING_LINE,
    )


def _table(seen: Seen) -> Table:
    return Table(
        title="What matters",
        caption="The setting itself, then one choice made otherwise, for two steps unless the row says three. Columns: "
        "the number of models in which every symbol asked for has a partial loss below 0.5 at the end; the step at "
        "which the first symbol, and the last, passed 0.5, mean over the models in which it did; how many of the "
        "models that retrieve two symbols or more do so in chain order; the final loss, mean and lowest over models.",
        columns=("setting", "learned", "of", "first symbol", "last symbol", "in order", "loss", "lowest"),
        rows=tuple((label, *_row(run)) for label, run in seen.runs.items()),
    )


def _row(run: TrainedRun) -> tuple[str | int | float | None, ...]:
    loss, retrieved = kit.at_end(run, "test", "loss"), chain_order.retrieved_at(run)
    learned = int((chain_order.partial_losses(run) < RETRIEVED).all(dim=1).sum())
    arrived = [times[times.isfinite()] for times in (retrieved[:, 0], retrieved[:, -1])]
    ordered = chain_order.in_order(retrieved[retrieved.isfinite().sum(dim=1) > 1])  # the others have no order
    return (
        learned,
        len(loss),
        *(float(times.mean()) if len(times) else None for times in arrived),
        f"{int(ordered.sum())} of {len(ordered)}" if len(ordered) else None,
        float(loss.mean()),
        float(loss.min()),
    )


STUDY = Study(
    "retrieval/plateau",
    __doc__,
    measures_in(__name__),
    trains=experiments,
    reads=Seen,
    draws=(_figures, _table),
    profiles={
        "quick": Profile(
            QUICK,
            "The base is the quick setting of `retrieval/depth`: two steps with four layers and 800 batches, three "
            "with six layers and 1400.",
        ),
        "paper": Profile(PAPER, "Section 7.1 with eight layers, two and three steps, without the search."),
    },
    smoke=SMOKE,
    chosen_on=SEARCHED,
)
