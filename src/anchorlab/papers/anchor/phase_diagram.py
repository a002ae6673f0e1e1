"""Composing against memorising: a phase diagram of depth and initialisation.

The pair (4, 3) is trained on key - 6 in place of key - 10; the pair (3, 4) is never trained. Is (3, 4) answered by
composing its operations (-10) or as the symmetric pair (-6)?

Source: Zhang et al., Initialization is Critical to Whether Transformers Fit Composite Functions by Reasoning or
Memorizing (2024), which builds on anchor functions, section 4.4.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from math import isfinite

import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.findings import Map, MapFigure, Table, at_least, grid
from anchorlab.models import DecoderSpec
from anchorlab.papers.anchor.settings import Setting, at_every_gamma
from anchorlab.studies import SEARCHED, Profile, Reading, Study, mean_of_known, over_shared, reading
from anchorlab.studies.claim import Measurement, claim, measures_in, over, precondition
from anchorlab.studies.kit import ACCURACY, at_end, column_table, curves_against
from anchorlab.studies.quick import quick_model, quick_recipe
from anchorlab.tasks import Task, task
from anchorlab.training import AdamW, Evaluation, Experiment, FixedSample, Recipe, Stream, WarmupCosine

SMALL, LARGE = 0.8, 0.5  # the rates γ of small and large initialisation: weights begin as N(0, d^-2γ)
LEARNED = 0.9  # the accuracy on `test on data` from which a member is judged: below it, answers follow no rule


@dataclass(frozen=True)
class Grid(Setting):
    """A setting whose model is trained with several numbers of layers, each member at a rate γ."""

    depths: tuple[int, ...] = ()
    gammas: tuple[float, ...] = ()


QUICK = Grid(
    quick_model(),
    quick_recipe(8000, steps=2200, batch=100, learning_rate=2e-3, weight_decay=0.03),
    seeds=2,
    depths=(2, 3),
    gammas=(0.5, 0.8, 1.0),
)
SCALED = Grid(
    quick_model(width=128),
    quick_recipe(8000, steps=4000, batch=100, learning_rate=1e-3, weight_decay=0.01).replace(data=Stream()),
    seeds=2,
    depths=(2,),
    gammas=(0.5, 0.8),
)
PAPER = Grid(
    DecoderSpec(),
    Recipe(
        data=FixedSample(size=900_000),
        optimiser=AdamW(learning_rate=2e-4, weight_decay=0.01),
        schedule=WarmupCosine(warmup=10, horizon=210, start=0.05, end=0.05),
        batch=2048,
        unit="epochs",
        duration=210,
        clip=1.0,
        evaluation=Evaluation(every=5),
    ),
    seeds=3,
    depths=tuple(range(2, 8)),
    gammas=(0.3, 0.5, 0.6, 0.8),
)


def experiments(setting: Grid) -> dict[int, Experiment]:
    """Return an experiment for each depth, all with the same members."""
    return {
        depth: Experiment(
            mislabelled(),
            setting.model.replace(layers=depth, initialisation="gamma"),
            setting.recipe,
            at_every_gamma(setting.gammas, setting.seeds),
            f"mislabelled composite, {depth} layers",
        )
        for depth in setting.depths
    }


def mislabelled() -> Task:
    """Return the composite task whose pair (4, 3) asks for key - 6 and whose pair (3, 4) is never trained."""
    return task("anchor/composite", exceptions={"4,3": "-6"})


def _at_end(split: str, metric: str) -> cached_property[Float[Tensor, "depth gamma seed"]]:
    def read(seen: Reading) -> Float[Tensor, "depth gamma seed"]:
        rows = len(seen.setting.gammas)
        return torch.stack([at_end(run, split, metric).reshape(rows, -1) for run in seen.runs.values()])

    return reading(read)


class Cells(Reading):
    """Results of every member of the grid, as shares of test inputs."""

    depths = reading(lambda seen: tuple(seen.runs))  # numbers of layers
    gammas = reading(lambda seen: tuple(seen.setting.gammas))  # rates γ
    composed = _at_end("test on task", "agrees: composed")  # the share of (3, 4) answered by -10
    symmetric = _at_end("test on task", "agrees: symmetric")  # the share of (3, 4) answered by -6
    data = _at_end("test on data", "accuracy")  # the share of trained pairs answered rightly
    learned = reading(lambda seen: seen.data >= LEARNED)  # which members answer the trained pairs

    def at(self, values: Float[Tensor, "depth gamma seed"], gamma: float) -> Float[Tensor, "depth seed"]:
        """Return the values at a γ of the grid; NaN for members that did not learn."""
        return values.where(self.learned, torch.tensor(torch.nan))[:, self.gammas.index(gamma)]

    def answered_by(self, depth: int, gamma: int) -> str:
        """Return which rule explains most answers in the cell at these indices, over the members that learned."""
        learned = self.learned[depth, gamma]
        if not learned.any():
            return "not learned"
        rules = {"composed": self.composed, "symmetric": self.symmetric}
        shares = {name: float(values[depth, gamma][learned].mean()) for name, values in rules.items()}
        shares["otherwise"] = 1 - sum(shares.values())
        return max(shares, key=lambda name: shares[name])


@claim("phase diagram", "composed", at_least(0.5))
def small_composes(seen: Cells) -> Measurement:
    """Small initialisation, γ = {SMALL:g}: the unseen pair is answered by composing its operations.

    Share of (3, 4) inputs answered by -10 at γ = {SMALL:g}, mean over the members of every depth that learned.
    """
    return mean_of_known(seen.at(seen.composed, SMALL).T)


@claim("phase diagram", "symmetric", at_least(0.5))
def large_symmetric(seen: Cells) -> Measurement:
    """Large initialisation, γ = {LARGE:g}: the unseen pair is answered as the symmetric pair, which was memorised.

    Share of (3, 4) inputs answered by -6 at γ = {LARGE:g}, mean over the members of every depth that learned.
    """
    return mean_of_known(seen.at(seen.symmetric, LARGE).T)


@claim("phase diagram", "composed where it is small, symmetric where it is large", at_least(0.5))
def initialisation_decides(seen: Cells) -> Measurement:
    """The initialisation decides whether the unseen pair is composed or answered as the symmetric pair.

    Share of (3, 4) inputs answered by -10 at γ = {SMALL:g} minus that at γ = {LARGE:g}, mean over depths.
    """
    both = torch.stack([seen.at(seen.composed, gamma).T for gamma in (SMALL, LARGE)])  # [gamma seed depth]

    def difference(rows: Tensor) -> Tensor:
        small, large = rows.nanmean(dim=0).unbind()
        return (small - large).nanmean()

    judged = both.isfinite().any(dim=(0, 2))
    found = over_shared(both.movedim(1, 0)[judged], difference)
    return found if found.value is None or isfinite(found.value) else Measurement(None)


@precondition("", "about 1", at_least(0.9))
def learned(seen: Cells) -> Measurement:
    """The trained pairs are answered wherever the question is asked.

    Share of the members at γ = {SMALL:g} and γ = {LARGE:g} that learned: accuracy on `test on data` at least
    {LEARNED:g}.
    """
    judged = [seen.gammas.index(gamma) for gamma in (LARGE, SMALL)]
    return over(seen.learned[:, judged].float().mean(dim=(0, 1)))


def _maps(seen: Cells) -> MapFigure:
    rows, columns = tuple(map(str, seen.depths)), tuple(f"{gamma:g}" for gamma in seen.gammas)
    shares = {"composed": seen.composed, "symmetric": seen.symmetric, "test on data": seen.data}
    return MapFigure(
        title="What the unseen pair (3, 4) is answered by, over depth and initialisation",
        caption="Share of test inputs, mean over seeds: answered by composing (-10), as the symmetric pair "
        "(-6), and the accuracy of the trained pairs on keys at unseen positions. Weights begin as N(0, "
        "d^-2γ): a larger γ is a smaller initialisation.",
        maps=(tuple(Map(title, grid(values.mean(dim=2)), rows, columns) for title, values in shares.items()),),
        x_label="initialisation rate γ",
        y_label="layers",
        value_label="share of test inputs",
        value_range=(0.0, 1.0),
    )


def _cell_by_cell(seen: Cells) -> Table:
    depths, gammas = range(len(seen.depths)), range(len(seen.gammas))
    return column_table(
        "Cell by cell",
        "Means over seeds. The last column names what explains most answers of the members whose accuracy of "
        f"test on data is at least {LEARNED:g}.",
        {
            "layers": [layers for layers in seen.depths for _ in gammas],
            "γ": seen.gammas * len(depths),
            "test on data": seen.data.mean(dim=2).flatten(),
            "members that learned": seen.learned.sum(dim=2).flatten(),
            "composed": seen.composed.mean(dim=2).flatten(),
            "symmetric": seen.symmetric.mean(dim=2).flatten(),
            "mostly answered": [seen.answered_by(depth, gamma) for depth in depths for gamma in gammas],
        },
    )


STUDY = Study(
    "anchor/phase-diagram",
    __doc__,
    measures_in(__name__),
    paper="Initialization is critical",
    trains=experiments,
    reads=Cells,
    draws=(
        _maps,
        lambda seen: curves_against(
            "What the unseen pair (3, 4) is answered by, over initialisation",
            seen.gammas,
            {name: getattr(seen, name).transpose(1, 2).flatten(0, 1) for name in ("composed", "symmetric")},
            x_label="initialisation rate γ",
            y_label="share of test inputs",
            caption="Mean over depths and seeds; the band reaches from the lowest to the highest.",
            y_range=ACCURACY,
        ),
        _cell_by_cell,
    ),
    profiles={
        "quick": Profile(QUICK),
        "scaled": Profile(SCALED, "No sequence repeats; in the source each is seen 210 times, in 92,400 steps."),
        "paper": Profile(
            PAPER,
            "As the source prints it. Ten epochs of warm-up before 200 of cosine, clipping at 1 and three seeds are "
            "ours.",
        ),
    },
    smoke=replace(QUICK.shortened(steps=4, size=200), depths=(1, 2), gammas=(0.5, 0.8)),
    chosen_on=SEARCHED,
)
