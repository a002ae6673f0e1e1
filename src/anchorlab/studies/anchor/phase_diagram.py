"""Composing against memorising: what an unseen pair of anchors is answered by, over depth and initialisation.

Source: Zhang et al., Initialization is Critical to Whether Transformers Fit Composite Functions by Reasoning or
Memorizing (2024), which goes on from anchor functions, section 4.4.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from anchorlab.findings import Claim, Findings, LineFigure, Map, MapFigure, Provenance, Table, grid, line
from anchorlab.models import DecoderSpec
from anchorlab.studies.anchor.settings import paper_recipe, quick_model, quick_recipe
from anchorlab.studies.kit import judge_means, at_end
from anchorlab.studies.study import Profile, Study
from anchorlab.tasks import Task, task
from anchorlab.training import Experiment, Members, Recipe, TrainedRun

SMALL, LARGE = 0.8, 0.5
"""The rates γ that the paper calls small and large initialisation: weights begin as N(0, inputs^-2γ)."""

LEARNED = 0.9
"""A member is judged once its accuracy of test on data is at least this: otherwise it answers nothing by any rule."""

CLAIMS = (
    Claim(
        "anchor/phase-diagram/small-composes",
        f"Small initialisation, γ = {SMALL:g}: the unseen pair is answered by composing its operations",
        "Initialization is critical, phase diagram",
        "composed",
        f"share of (3, 4) inputs answered by -10 at γ = {SMALL:g}, mean over the members of every depth that learned",
        (0.5, None),
    ),
    Claim(
        "anchor/phase-diagram/large-symmetric",
        f"Large initialisation, γ = {LARGE:g}: it is answered as the symmetric pair, which was memorised",
        "Initialization is critical, phase diagram",
        "symmetric",
        f"share of (3, 4) inputs answered by -6 at γ = {LARGE:g}, mean over the members of every depth that learned",
        (0.5, None),
    ),
    Claim(
        "anchor/phase-diagram/initialisation-decides",
        "The initialisation decides between the two",
        "Initialization is critical, phase diagram",
        "composed where it is small, symmetric where it is large",
        f"share answered by -10 at γ = {SMALL:g} minus that at γ = {LARGE:g}, by depth, mean over depths",
        (0.5, None),
    ),
    Claim(
        "anchor/phase-diagram/learned",
        "The trained pairs are answered wherever the question is asked",
        "Initialization is critical",
        "about 1",
        f"share of the members at γ = {SMALL:g} and γ = {LARGE:g} that learned: accuracy of test on data at least "
        f"{LEARNED:g}",
        (0.9, None),
    ),
)


def mislabelled() -> Task:
    """The composite task whose pair (4, 3) asks for key - 6 and whose pair (3, 4) is never trained."""
    return task("anchor/composite", exceptions={"4,3": "-6"})


def members(gammas: Sequence[float], seeds: int) -> Members:
    """Every seed at every γ; a seed's weights at two γ differ in their scale alone."""
    return Members(
        seeds=tuple(range(seeds)) * len(gammas),
        gamma={"all": tuple(gamma for gamma in gammas for _ in range(seeds))},
    )


def _experiments(
    model: DecoderSpec, recipe: Recipe, depths: Sequence[int], gammas: Sequence[float], seeds: int
) -> list[Experiment]:
    return [
        Experiment(
            mislabelled(),
            model.replace(layers=depth, initialisation="normal"),
            recipe,
            members(gammas, seeds),
            f"mislabelled composite, {depth} layers",
        )
        for depth in depths
    ]


def _quick(
    depths: Sequence[int] = (2, 3),
    gammas: Sequence[float] = (0.5, 0.8, 1.0),
    seeds: int = 2,
    steps: int = 2200,
    size: int = 8000,
) -> Profile:
    def experiments() -> list[Experiment]:
        recipe = quick_recipe(size, steps, batch=100, learning_rate=2e-3, weight_decay=0.03)
        return _experiments(quick_model(), recipe, depths, gammas, seeds)

    return Profile(
        experiments,
        f"Quick profile: one head, width 64, {', '.join(map(str, depths))} layers, {len(gammas)} rates γ, {seeds} "
        f"seeds each; {size} sequences, {steps} steps of batch 100 with learning rate 2e-3 and weight decay 0.03.",
    )


def _paper() -> Profile:
    def experiments() -> list[Experiment]:
        gammas = tuple(round(0.1 * tenth, 1) for tenth in range(3, 11))
        return _experiments(DecoderSpec(), paper_recipe(8000, batch=100), tuple(range(2, 9)), gammas, seeds=3)

    return Profile(
        experiments,
        "Paper profile: the composite task's setting in the anchor-function paper (8000 sequences, batch 100, 4000 "
        "epochs, four heads, width 400); the grid of 2 to 8 layers by γ from 0.3 to 1.0 and three seeds are our "
        "choice.",
    )


@dataclass(frozen=True)
class Cells:
    """What every member of the grid does, each `[depth gamma seed]`."""

    depths: tuple[int, ...]
    gammas: tuple[float, ...]
    composed: Tensor
    symmetric: Tensor
    data: Tensor

    @property
    def learned(self) -> Tensor:
        """Which members answer the trained pairs."""
        return self.data >= LEARNED

    def at(self, values: Tensor, gamma: float) -> Tensor | None:
        """The values `[depth seed]` at one γ, NaN where a member has not learned; None if γ is not on the grid."""
        if gamma not in self.gammas:
            return None
        kept = values.where(self.learned, torch.tensor(float("nan")))
        return kept[:, self.gammas.index(gamma)]

    def answered_by(self, depth: int, gamma: int) -> str:
        """What explains most answers of the members of one cell that learned."""
        learned = self.learned[depth, gamma]
        if not learned.any():
            return "not learned"
        shares = {
            "composed": float(self.composed[depth, gamma][learned].mean()),
            "symmetric": float(self.symmetric[depth, gamma][learned].mean()),
        }
        shares["otherwise"] = 1 - sum(shares.values())
        return max(shares, key=lambda name: shares[name])


def read_cells(runs: Sequence[TrainedRun]) -> Cells:
    """The grid of runs of one depth each, all with the same members."""
    grown = runs[0].experiment.members
    rates = grown.gamma.all or ()
    gammas = tuple(dict.fromkeys(rates))

    def values(split: str, metric: str) -> Tensor:
        rows = [at_end(run, split, metric).reshape(len(gammas), -1) for run in runs]
        return torch.stack(rows)

    return Cells(
        depths=tuple(_layers(run) for run in runs),
        gammas=gammas,
        composed=values("test on task", "agrees: composed"),
        symmetric=values("test on task", "agrees: symmetric"),
        data=values("test on data", "accuracy"),
    )


def _layers(run: TrainedRun) -> int:
    assert isinstance(run.experiment.model, DecoderSpec)
    return run.experiment.model.layers


def measure(cells: Cells) -> dict[str, Tensor | None]:
    """What the claims are judged by."""
    small, large = cells.at(cells.composed, SMALL), cells.at(cells.composed, LARGE)
    symmetric = cells.at(cells.symmetric, LARGE)
    fall = None if small is None or large is None else small.nanmean(dim=1) - large.nanmean(dim=1)
    asked = [cells.gammas.index(gamma) for gamma in (LARGE, SMALL) if gamma in cells.gammas]
    return {
        "small-composes": _known(small),
        "large-symmetric": _known(symmetric),
        "initialisation-decides": _known(fall),
        "learned": cells.learned[:, asked].float().flatten() if len(asked) == 2 else None,
    }


def _known(values: Tensor | None) -> Tensor | None:
    """What is not NaN, None where nothing is."""
    known = None if values is None else values[~values.isnan()]
    return None if known is None or not known.numel() else known


def analyse(runs: Sequence[TrainedRun], provenance: Provenance, note: str) -> Findings:
    """The phase diagram, from one run per depth whose members are every γ and seed."""
    cells = read_cells(runs)
    return Findings(
        study=STUDY.name,
        title=STUDY.title,
        summary="The pair (4, 3) is trained on key - 6 in place of key - 10, the pair (3, 4) never. Is (3, 4) answered "
        f"by composing its operations (-10) or as the symmetric pair (-6)? {note}",
        profile=provenance.profile,
        provenance=provenance,
        claims=judge_means(
            CLAIMS,
            measure(cells),
            provenance.profile,
            {
                **dict.fromkeys(("small-composes", "large-symmetric"), "runs of every depth that learned"),
                "initialisation-decides": "depths",
                "learned": "runs of every depth",
            },
        ),
        figures=(_phase_figure(cells), _line_figure(cells)),
        tables=(_table(cells),),
    )


def _phase_figure(cells: Cells) -> MapFigure:
    rows, columns = tuple(map(str, cells.depths)), tuple(f"{gamma:g}" for gamma in cells.gammas)
    return MapFigure(
        title="What the unseen pair (3, 4) is answered by, over depth and initialisation",
        caption="Share of test inputs, mean over seeds: answered by composing (-10), as the symmetric pair (-6), and "
        "the accuracy of the trained pairs on keys at unseen positions. Weights begin as N(0, inputs^-2γ): a larger γ "
        "is a smaller initialisation.",
        maps=(
            tuple(
                Map(title, grid(values.mean(dim=2)), rows, columns)
                for title, values in (
                    ("composed", cells.composed),
                    ("symmetric", cells.symmetric),
                    ("test on data", cells.data),
                )
            ),
        ),
        x_label="initialisation rate γ",
        y_label="layers",
        value_label="share of test inputs",
        value_range=(0.0, 1.0),
    )


def _line_figure(cells: Cells) -> LineFigure:
    def over_depths(values: Tensor) -> Tensor:
        return values.permute(0, 2, 1).flatten(0, 1)

    return LineFigure(
        title="What the unseen pair (3, 4) is answered by, over initialisation",
        caption="Mean over depths and seeds; the band reaches from the lowest to the highest.",
        x_label="initialisation rate γ",
        y_label="share of test inputs",
        lines=(
            line("composed", cells.gammas, over_depths(cells.composed)),
            line("symmetric", cells.gammas, over_depths(cells.symmetric)),
        ),
        y_range=(0.0, 1.02),
    )


def _table(cells: Cells) -> Table:
    return Table(
        title="Cell by cell",
        caption="Means over seeds. The last column names what explains most answers of the members whose accuracy of "
        f"test on data is at least {LEARNED:g}.",
        columns=("layers", "γ", "test on data", "members that learned", "composed", "symmetric", "mostly answered"),
        rows=tuple(
            (
                layers,
                rate,
                float(cells.data[depth, gamma].mean()),
                int(cells.learned[depth, gamma].sum()),
                float(cells.composed[depth, gamma].mean()),
                float(cells.symmetric[depth, gamma].mean()),
                cells.answered_by(depth, gamma),
            )
            for depth, layers in enumerate(cells.depths)
            for gamma, rate in enumerate(cells.gammas)
        ),
    )


STUDY = Study(
    name="anchor/phase-diagram",
    title="Composing against memorising: a phase diagram of depth and initialisation",
    claims=CLAIMS,
    profiles={
        "quick": _quick(),
        "paper": _paper(),
        "smoke": _quick(depths=(1, 2), gammas=(0.5, 0.8), seeds=2, steps=4, size=200),
    },
    analyse=analyse,
)
