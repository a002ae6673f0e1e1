"""The retrieval problem: what depth buys, with and without an implicit curriculum.

Source: stacked attention heads, section 7 and Figure 4.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from anchorlab.findings import Claim, ClaimResult, Findings, LineFigure, Provenance, Reference, Table, line
from anchorlab.models import VectorSpec
from anchorlab.studies.kit import along, at_end, spread
from anchorlab.studies.retrieval.chain_order import in_order, retrieved_at, retrieving_two
from anchorlab.studies.retrieval.settings import (
    QUICK_MODEL,
    RETRIEVED,
    SMOKE_MODEL,
    layers_of,
    paper_recipe,
    paper_task,
    quick_recipe,
    quick_task,
    retrieval_of,
    smoke_recipe,
)
from anchorlab.studies.study import Profile, Study
from anchorlab.tasks import MinimalRetrieval
from anchorlab.training import Experiment, Members, Recipe, TrainedRun

CLAIMS = (
    Claim(
        "retrieval/depth/no-curriculum-fails",
        "Without the implicit curriculum no depth helps",
        "stacked attention heads, section 7.2",
        "above 0.7 in 100 % of runs",
        "lowest final loss of any run without the curriculum, over depths and seeds; judged only where, trained alike, "
        "some depth with the curriculum retrieves the symbol that is asked for",
        (0.7, None),
    ),
    Claim(
        "retrieval/depth/depth-helps",
        "With it, deeper transformers reach a lower loss",
        "stacked attention heads, Fig 4 left",
        "falls with the number of layers",
        "mean final loss of the shallowest minus that of the deepest",
        (0.2, None),
    ),
    Claim(
        "retrieval/depth/chain-order",
        "Partial losses fall below 0.5 in chain order",
        "stacked attention heads, section 7.2",
        "in 100 % of runs",
        "share of the curriculum runs that retrieve two symbols or more in which x_1 falls below first, then x_2, ...",
        (1.0, 1.0),
    ),
    Claim(
        "retrieval/depth/later-is-harder",
        "Later positions of the chain are harder",
        "stacked attention heads, Fig 4 right",
        "higher partial loss for later positions",
        "share of the curriculum runs that retrieve anything whose final partial losses rise along the chain",
        (1.0, 1.0),
    ),
    Claim(
        "retrieval/depth/second-step-retrieved",
        "With enough layers the second step is retrieved as well",
        "stacked attention heads, Fig 4 right",
        "partial loss of x_2 far below 0.5",
        "lowest mean final partial loss of x_2 over depths, with the curriculum",
        (None, RETRIEVED),
    ),
)


@dataclass(frozen=True)
class Setting:
    """The sizes of one profile: how deep, chains of how many steps, with how many seeds."""

    chains: Callable[[int], MinimalRetrieval]
    layers: tuple[int, ...]
    steps_with: int
    steps_without: int
    seeds: int
    without_seeds: int
    model: VectorSpec
    recipe: Recipe

    def experiments(self) -> list[Experiment]:
        """One experiment for each curriculum and depth."""
        return [
            Experiment(
                self.chains(steps).replace(implicit_curriculum=curriculum),
                self.model.replace(layers=layers),
                self.recipe,
                Members(seeds=tuple(range(seeds))),
                label=f"{layers} layer{'s' * (layers > 1)}, {'with' if curriculum else 'no'} curriculum",
            )
            for curriculum, steps, seeds in (
                (True, self.steps_with, self.seeds),
                (False, self.steps_without, self.without_seeds),
            )
            for layers in self.layers
        ]


def analyse(runs: Sequence[TrainedRun], provenance: Provenance, note: str) -> Findings:
    """Both panels of Figure 4, and the partial losses along training."""
    having = [run for run in runs if retrieval_of(run).implicit_curriculum]
    lacking = [run for run in runs if not retrieval_of(run).implicit_curriculum]
    partials = [_partials(run) for run in having]
    return Findings(
        study=STUDY.name,
        title=STUDY.title,
        summary="Chains of random vectors must be followed from pair to pair. With the implicit curriculum every step "
        f"of the chain is asked for, without it only the last. {note}",
        profile=provenance.profile,
        provenance=provenance,
        claims=tuple(_judge(having, lacking, partials, provenance.profile)),
        figures=(_loss_figure(having, lacking), _partial_figure(having, partials), _training_figure(having)),
        tables=(_table(having, lacking, partials),),
    )


def _judge(
    having: Sequence[TrainedRun], lacking: Sequence[TrainedRun], partials: Sequence[Tensor], profile: str
) -> Iterator[ClaimResult]:
    without = torch.cat([_loss(run) for run in lacking])
    gain = _loss(having[0]).mean() - _loss(having[-1]).mean()
    times = torch.cat([retrieved_at(run) for run in having])
    ordered = in_order(retrieving_two(times))
    finals = torch.cat(list(partials))
    finals = finals[(finals < RETRIEVED).any(dim=1)]
    rising = (finals.diff(dim=1) >= 0).all(dim=1).float()
    second = torch.stack([values[:, 1].mean() for values in partials])
    best = partials[int(second.argmin())][:, 1]
    asked = torch.stack([values[:, retrieval_of(lacking[0]).steps - 1].mean() for values in partials])
    learnable = bool((asked < RETRIEVED).any())
    yield CLAIMS[0].judge(float(without.min()) if learnable else None, profile, spread(without, "runs"))
    yield CLAIMS[1].judge(float(gain), profile)
    yield CLAIMS[2].judge(
        float(ordered.mean()) if len(ordered) else None,
        profile,
        detail=f"{len(ordered)} of {len(times)} runs retrieve two symbols or more",
    )
    yield CLAIMS[3].judge(float(rising.mean()) if len(rising) else None, profile, detail=f"{len(rising)} runs")
    yield CLAIMS[4].judge(float(second.min()), profile, spread(best))


def _loss(run: TrainedRun) -> Tensor:
    return at_end(run, "test", "loss")


def _partials(run: TrainedRun) -> Tensor:
    """Final partial losses, `[member step]`."""
    return torch.stack([at_end(run, "test", f"partial_{step}") for step in retrieval_of(run).asked], dim=1)


def _loss_figure(having: Sequence[TrainedRun], lacking: Sequence[TrainedRun]) -> LineFigure:
    lines = [
        line(
            f"{name} (D = {retrieval_of(runs[0]).steps})",
            [layers_of(run) for run in runs],
            torch.stack([_loss(r) for r in runs], 1),
        )
        for name, runs in (("implicit curriculum", having), ("no curriculum", lacking))
    ]
    return LineFigure(
        title="Final loss against the number of layers (Fig 4, left)",
        caption="Mean squared error on fresh sequences at the end of training; mean and range over seeds. Knowing "
        "which symbols occur, but not which is asked for, gives 0.75.",
        x_label="layers",
        y_label="mean squared error",
        lines=tuple(lines),
        y_range=(0.0, 1.05),
        references=(Reference("guessing among the chains", 0.75),),
    )


def _partial_figure(runs: Sequence[TrainedRun], partials: Sequence[Tensor]) -> LineFigure:
    stacked = torch.stack(list(partials), dim=1)
    return LineFigure(
        title="Partial loss of each position of the chain against depth (Fig 4, right)",
        caption="With the implicit curriculum, at the end of training; mean and range over seeds.",
        x_label="layers",
        y_label="mean squared error",
        lines=tuple(
            line(f"x_{step}", [layers_of(run) for run in runs], stacked[:, :, index])
            for index, step in enumerate(retrieval_of(runs[0]).asked)
        ),
        y_range=(0.0, 1.05),
        references=(Reference("retrieved", RETRIEVED),),
    )


def _training_figure(runs: Sequence[TrainedRun]) -> LineFigure:
    deepest = runs[-1]
    lines = []
    for step in retrieval_of(deepest).asked:
        times, values = along(deepest, "test", f"partial_{step}")
        lines.append(line(f"x_{step}", times, values))
    return LineFigure(
        title=f"Partial losses along training, {layers_of(deepest)} layers",
        caption="With the implicit curriculum; mean and range over seeds. In the paper, the earlier a symbol stands "
        "in the chain, the earlier it is retrieved.",
        x_label="step",
        y_label="mean squared error",
        lines=tuple(lines),
        y_range=(0.0, 1.05),
        references=(Reference("retrieved", RETRIEVED),),
    )


def _table(having: Sequence[TrainedRun], lacking: Sequence[TrainedRun], partials: Sequence[Tensor]) -> Table:
    asked = list(retrieval_of(having[0]).asked)
    rows = [
        (layers_of(run), float(_loss(run).mean()), float(_loss(other).mean()), *(float(v) for v in values.mean(dim=0)))
        for run, other, values in zip(having, lacking, partials, strict=True)
    ]
    return Table(
        title="Final losses by depth",
        caption="Means over seeds; partial losses with the curriculum.",
        columns=("layers", "with curriculum", "without", *(f"x_{step}" for step in asked)),
        rows=tuple(rows),
    )


STUDY = Study(
    name="retrieval/depth",
    title="Retrieval: loss against depth, with and without implicit curriculum",
    claims=CLAIMS,
    profiles={
        "quick": Profile(
            Setting(
                chains=quick_task,
                layers=(1, 2, 3, 4, 6),
                steps_with=3,
                steps_without=3,
                seeds=3,
                without_seeds=2,
                model=QUICK_MODEL,
                recipe=quick_recipe(1000),
            ).experiments,
            "Quick profile: D = 3, N = 4, K = 8, width 64, one head in each layer, no feed-forward layers, 1000 steps "
            "of 64 fresh sequences at 3e-3 after a warm-up, weight decay 0.1, initial scale 0.15, position vectors of "
            "eight neighbours nearly orthogonal. The paper has D = 5 (3 without the curriculum), K = 4, width 128 with "
            "eight heads and feed-forward layers, and 10,000 steps of 512 out of 2^20 sequences at 1e-3.",
        ),
        "paper": Profile(
            Setting(
                chains=paper_task,
                layers=tuple(range(1, 9)),
                steps_with=5,
                steps_without=3,
                seeds=8,
                without_seeds=8,
                model=VectorSpec(),
                recipe=paper_recipe(10_000, 512, size=2**20),
            ).experiments,
            "Paper profile: section 7.1. Not given by the paper, and so our choice: rotary frequencies 10000^(-2i/K), "
            "initial scale 0.02, gradient clipping at 1, no warm-up, and a causal mask. The final loss is "
            "measured once at the end on 4096 sequences, where the paper averages over the last 100 steps.",
        ),
        "smoke": Profile(
            Setting(
                chains=paper_task,
                layers=(1, 2),
                steps_with=2,
                steps_without=2,
                seeds=2,
                without_seeds=1,
                model=SMOKE_MODEL,
                recipe=smoke_recipe(),
            ).experiments,
            "Smoke profile: far too short to show anything; it only exercises the code.",
        ),
    },
    analyse=analyse,
)
