"""The retrieval problem: what it takes to leave the plateau of guessing, one choice changed at a time.

Source: stacked attention heads, section 7; the search for a setting small enough for two cores is ours.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from anchorlab.findings import Claim, ClaimResult, Findings, LineFigure, Provenance, Reference, Table, line
from anchorlab.models import VectorSpec
from anchorlab.studies.kit import along, at_end, spread
from anchorlab.studies.retrieval.chain_order import in_order, retrieved_at, retrieving_two
from anchorlab.studies.retrieval.settings import (
    QUICK_MODEL,
    RETRIEVED,
    SMOKE_MODEL,
    nearly_orthogonal,
    orthogonal,
    paper_recipe,
    paper_task,
    quick_recipe,
    quick_task,
    retrieval_of,
    smoke_recipe,
)
from anchorlab.studies.study import Profile, Study
from anchorlab.tasks import MinimalRetrieval
from anchorlab.training import AdamW, Experiment, Members, Recipe, TrainedRun

_STUDY = "retrieval/plateau"
_PLAIN = 4  # experiments of the setting itself: two and three steps, with the curriculum and without

CLAIMS = (
    Claim(
        f"{_STUDY}/curriculum-learns",
        "With the implicit curriculum the whole chain is learned",
        "stacked attention heads, section 7.2",
        "essential for successful learning",
        "highest final loss of any model of two and of three steps with the curriculum",
        (None, 0.1),
    ),
    Claim(
        f"{_STUDY}/without-it-fails",
        "Without it nothing is learned, all else being equal",
        "stacked attention heads, section 7.2",
        "above 0.7 in 100 % of runs",
        "lowest final loss of any model of two and of three steps without the curriculum; judged only where those with "
        "it are below 0.5 on average",
        (0.7, None),
    ),
)


TOLD_APART = tuple(2 * math.pi / 29 * turn for turn in (1, 3, 7, 12))
"""Frequencies for K = 8 under which no two of 28 positions are alike: their cosine is 0.24 at the most."""


@dataclass(frozen=True)
class Change:
    """One choice of the setting of two steps made otherwise, or of that of three where `longer`."""

    label: str
    task: Mapping[str, Any]
    model: Mapping[str, Any]
    recipe: Mapping[str, Any]
    longer: bool = False


def _optimiser(learning_rate: float = 3e-3, weight_decay: float = 0.1) -> dict[str, Any]:
    return {"optimiser": AdamW(learning_rate=learning_rate, weight_decay=weight_decay)}


CHANGES = (
    Change("K = 4", {"features": 4, "frequencies": nearly_orthogonal(4)}, {}, {}),
    Change("K = 16", {"features": 16, "frequencies": nearly_orthogonal(16)}, {}, {}),
    Change("K = 4 and rotary frequencies, as in the paper", {"features": 4, "frequencies": ()}, {}, {}),
    Change("rotary frequencies 10000^(-2i/K)", {"frequencies": ()}, {}, {}),
    Change("positions orthogonal, repeated after 16", {"frequencies": orthogonal(8)}, {}, {}),
    Change("positions all told apart", {"frequencies": TOLD_APART}, {}, {}),
    Change("one position for both members of a pair", {"positions": "pair"}, {}, {}),
    Change("initial scale 0.02, GPT-2's", {}, {"initial_scale": 0.02}, {}),
    Change("initial scale 0.08", {}, {"initial_scale": 0.08}, {}),
    Change("initial scale 0.3", {}, {"initial_scale": 0.3}, {}),
    Change("residual maps not scaled down", {}, {"residual_scaling": False}, {}),
    Change("key maps start as query maps", {}, {"keys_like_queries": True}, {}),
    Change("no causal mask", {}, {"mask": False}, {}),
    Change("2 layers", {}, {"layers": 2}, {}),
    Change("3 layers", {}, {"layers": 3}, {}),
    Change("8 layers", {}, {"layers": 8}, {}),
    Change("4 heads in a layer", {}, {"heads": 4}, {}),
    Change("feed-forward layers", {}, {"feed_forward": True}, {}),
    Change("width 32", {}, {"width": 32}, {}),
    Change("width 128", {}, {"width": 128}, {}),
    Change("learning rate 3e-4", {}, {}, _optimiser(3e-4)),
    Change("learning rate 1e-3, as in the paper", {}, {}, _optimiser(1e-3)),
    Change("learning rate 1e-2", {}, {}, _optimiser(1e-2)),
    Change("no weight decay", {}, {}, _optimiser(weight_decay=0.0)),
    Change("batch 16", {}, {}, {"batch": 16}),
    Change("batch 128", {}, {}, {"batch": 128}),
    Change("3 steps: positions orthogonal, repeated after 16", {"frequencies": orthogonal(8)}, {}, {}, longer=True),
    Change("3 steps: positions all told apart", {"frequencies": TOLD_APART}, {}, {}, longer=True),
    Change("3 steps: one position for both members of a pair", {"positions": "pair"}, {}, {}, longer=True),
    Change("3 steps: K = 16", {"features": 16, "frequencies": nearly_orthogonal(16)}, {}, {}, longer=True),
    Change("3 steps: 4 layers", {}, {"layers": 4}, {}, longer=True),
    Change("3 steps: 8 layers", {}, {"layers": 8}, {}, longer=True),
    Change("3 steps: feed-forward layers", {}, {"feed_forward": True}, {}, longer=True),
)
"""What is tried beside the setting itself, with the curriculum."""


@dataclass(frozen=True)
class Setting:
    """One setting of two steps, the same for three but for depth and duration, and the number of seeds."""

    task: MinimalRetrieval
    model: VectorSpec
    recipe: Recipe
    longer: MinimalRetrieval
    deeper: int
    slower: Recipe
    seeds: int
    changes: tuple[Change, ...] = CHANGES

    def experiments(self) -> list[Experiment]:
        """Two and three steps with the curriculum and without, then the changes."""
        members = Members(seeds=tuple(range(self.seeds)))
        made = []
        short = self.task, self.model, self.recipe
        long = self.longer, self.model.replace(layers=self.deeper), self.slower
        for asked in (True, False):
            for task, model, recipe in (short, long):
                chosen = task.replace(implicit_curriculum=asked)
                made.append(Experiment(chosen, model, recipe, members, label=_plain_label(chosen)))
        made += [
            Experiment(
                task.replace(**change.task),
                model.replace(**change.model),
                recipe.replace(**change.recipe),
                members,
                label=change.label,
            )
            for change in self.changes
            for task, model, recipe in [long if change.longer else short]
        ]
        return made


def _plain_label(task: MinimalRetrieval) -> str:
    """The name of the setting itself; a run that another study trained first has a name from there."""
    return f"{task.steps} steps, {'with' if task.implicit_curriculum else 'no'} curriculum"


def analyse(runs: Sequence[TrainedRun], provenance: Provenance, note: str) -> Findings:
    """Which runs leave the plateau, and when."""
    having, lacking = (
        [run for run in runs[:_PLAIN] if retrieval_of(run).implicit_curriculum is asked] for asked in (True, False)
    )
    return Findings(
        study=STUDY.name,
        title=STUDY.title,
        summary="Guessing among the chains gives a loss of 0.75, and models stay there for long. Which choices decide "
        f"whether, and when, they leave? {note}",
        profile=provenance.profile,
        provenance=provenance,
        claims=tuple(_judge(having, lacking, provenance.profile)),
        figures=tuple(
            _figure(steps, *pair) for steps, pair in zip((2, 3), zip(having, lacking, strict=True), strict=True)
        ),
        tables=(_table(runs),),
    )


def _judge(having: Sequence[TrainedRun], lacking: Sequence[TrainedRun], profile: str) -> list[ClaimResult]:
    learned, failed = (
        torch.cat([at_end(run, "test", "loss") for run in several]) for several in (having, lacking)
    )
    return [
        CLAIMS[0].judge(learned.max(), profile, spread(learned, "models")),
        CLAIMS[1].judge(failed.min() if learned.mean() < RETRIEVED else None, profile, spread(failed, "models")),
    ]


def _figure(steps: int, having: TrainedRun, lacking: TrainedRun) -> LineFigure:
    lines = [line(f"x_{symbol}", *along(having, "test", f"partial_{symbol}")) for symbol in retrieval_of(having).asked]
    without = line(f"x_{steps} without the curriculum", *along(lacking, "test", f"partial_{steps}"))
    return LineFigure(
        title=f"{steps} steps, with the curriculum and without",
        caption="Partial losses on fresh sequences along training; mean and range over seeds.",
        x_label="step",
        y_label="mean squared error",
        lines=(*lines, without),
        y_range=(0.0, 1.05),
        references=(Reference("guessing among the chains", 0.75),),
    )


def _table(runs: Sequence[TrainedRun]) -> Table:
    return Table(
        title="What matters",
        caption="The setting itself, then one choice made otherwise, for two steps unless it says three. For how many "
        "of the models every symbol that is asked for has a partial loss below 0.5 at the end; the step at which the "
        "first symbol, and the last, passed 0.5, mean over the models in which it did; how many of the models that "
        "retrieve two symbols or more do so in chain order; the final loss, mean and lowest over models.",
        columns=("setting", "learned", "of", "first symbol", "last symbol", "in order", "loss", "lowest"),
        rows=tuple(
            _row(run, run.experiment.label if at >= _PLAIN else _plain_label(retrieval_of(run)))
            for at, run in enumerate(runs)
        ),
    )


def _row(run: TrainedRun, label: str) -> tuple[str | int | float | None, ...]:
    asked = retrieval_of(run).asked
    final = torch.stack([at_end(run, "test", f"partial_{symbol}") for symbol in asked])
    loss = at_end(run, "test", "loss")
    retrieved = retrieved_at(run)
    there = [times[times.isfinite()] for times in (retrieved[:, 0], retrieved[:, -1])]
    times = [float(one.mean()) if len(one) else None for one in there]
    learned = int((final < RETRIEVED).all(dim=0).sum())
    ordered = in_order(retrieving_two(retrieved))
    order = f"{int(ordered.sum())} of {len(ordered)}" if len(ordered) else None
    return label, learned, len(loss), *times, order, float(loss.mean()), float(loss.min())


STUDY = Study(
    name=_STUDY,
    title="Retrieval: leaving the plateau of guessing",
    claims=CLAIMS,
    profiles={
        "quick": Profile(
            Setting(
                task=quick_task(steps=2),
                model=QUICK_MODEL,
                recipe=quick_recipe(800),
                longer=quick_task(steps=3),
                deeper=6,
                slower=quick_recipe(1400),
                seeds=2,
            ).experiments,
            "Quick profile: N = 4, K = 8, one head in each layer, width 64, no feed-forward layers, batches of 64 "
            "fresh sequences at 3e-3 after a warm-up, weight decay 0.1, initial scale 0.15, position vectors of "
            "eight neighbours nearly orthogonal; two steps with four layers and 800 batches, three with six layers and "
            "1400.",
        ),
        "paper": Profile(
            Setting(
                task=paper_task(steps=2),
                model=VectorSpec(),
                recipe=paper_recipe(10_000, 512, size=2**20),
                longer=paper_task(steps=3),
                deeper=8,
                slower=paper_recipe(10_000, 512, size=2**20),
                seeds=8,
                changes=(),
            ).experiments,
            "Paper profile: section 7.1 with eight layers, two and three steps, without the search.",
        ),
        "smoke": Profile(
            Setting(
                task=paper_task(steps=2),
                model=SMOKE_MODEL,
                recipe=smoke_recipe(),
                longer=paper_task(steps=3),
                deeper=2,
                slower=smoke_recipe(),
                seeds=2,
                changes=tuple(one for one in CHANGES if one.label in ("K = 4", "3 steps: 4 layers")),
            ).experiments,
            "Smoke profile: far too short to show anything; it exercises the code.",
        ),
    },
    analyse=analyse,
)
