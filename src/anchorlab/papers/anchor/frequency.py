"""Low frequency is learned before high frequency.

Two anchors stand for the same operation (low frequency: the key for both) or for two that differ (high frequency: the
key for one, its successor for the other).

Source: anchor functions, section 6.1 and Figure 18.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from anchorlab.findings import LineFigure, Reference, Table, at_least, within
from anchorlab.lens import first_crossing
from anchorlab.models import DecoderSpec
from anchorlab.papers.anchor.settings import Setting, paper_recipe
from anchorlab.studies.claim import claim, measures_in, precondition
from anchorlab.studies.kit import MEAN_AND_RANGE, along, at_end, seed_table, training_curves
from anchorlab.studies.quick import quick_model, quick_recipe
from anchorlab.studies.seeds import SEARCHED
from anchorlab.studies.study import Analysis, Profile, Study
from anchorlab.tasks import task
from anchorlab.training import Experiment, TrainedRun

LEVELS = ("low", "high")
FITTED, GENERALISED = 0.5, 0.9  # a task is fitted below this training loss, and generalises above this test accuracy

_RECIPE = quick_recipe(2000, steps=1200, evaluations=80)
QUICK = Setting(quick_model(), _RECIPE.replace(evaluation=_RECIPE.evaluation.replace(size=250)), seeds=6)
PAPER = Setting(DecoderSpec(), paper_recipe(1000, epochs=1000, every=5), seeds=5)


def experiments(setting: Setting) -> list[Experiment]:
    """Return the experiments at low and at high frequency."""
    return [setting.experiment(task("anchor/frequency", level=level), f"{level} frequency") for level in LEVELS]


@dataclass(frozen=True)
class Learned:
    """The step at which each task passes its level; NaN for a member that never does."""

    fitted: Mapping[str, Float[Tensor, "member"]]  # step at which the training loss first falls below `FITTED`
    generalised: Mapping[str, Float[Tensor, "member"]]  # at which the test accuracy first rises above `GENERALISED`
    final: Mapping[str, Float[Tensor, "member"]]  # test accuracy at the end


def see(runs: Sequence[TrainedRun]) -> Learned:
    """Read when each task is learned, from the runs at low, then at high frequency."""
    by_level = dict(zip(LEVELS, runs, strict=True))
    return Learned(
        {one: first_crossing(*along(run, "train", "loss"), FITTED, falling=True) for one, run in by_level.items()},
        {one: first_crossing(*along(run, "test", "accuracy"), GENERALISED) for one, run in by_level.items()},
        {one: at_end(run, "test", "accuracy") for one, run in by_level.items()},
    )


def _all_there(steps: Mapping[str, Tensor]) -> bool:
    return not any(bool(value.isnan().any()) for value in steps.values())


@claim(
    "The training loss of the low-frequency task falls first",
    at="section 6.1 and Fig 18",
    paper="the low-frequency task is fitted faster",
    band=within(0.8, 1.0),
)
def loss_first(seen: Learned) -> Bool[Tensor, "seed"] | None:
    """Share of seeds whose low-frequency training loss is the first below {FITTED}."""
    return seen.fitted["low"] < seen.fitted["high"] if _all_there(seen.fitted) else None


@claim(
    "The low-frequency task generalises first",
    at="section 6.1 and Fig 18",
    paper="its test accuracy rises faster",
    band=within(0.8, 1.0),
)
def accuracy_first(seen: Learned) -> Bool[Tensor, "seed"] | None:
    """Share of seeds whose low-frequency test accuracy is the first above {GENERALISED}; judged only if every member of
    both tasks gets there."""
    return seen.generalised["low"] < seen.generalised["high"] if _all_there(seen.generalised) else None


@claim(
    "The high-frequency task takes longer",
    at="section 6.1 and Fig 18",
    paper="slower; no value in the text",
    band=at_least(1.05),
)
def slower(seen: Learned) -> Float[Tensor, "seed"] | None:
    """Steps until the training loss is below {FITTED}, ratio of high to low frequency, mean over seeds."""
    return seen.fitted["high"] / seen.fitted["low"] if _all_there(seen.fitted) else None


@precondition(
    "Both the high-frequency and the low-frequency task are learned in the end",
    at="Fig 18",
    paper="test accuracy about 1 for both",
    band=within(0.9, 1.0),
)
def both_learned(seen: Learned) -> Float[Tensor, "seed"]:
    """Test accuracy of the worse of the two tasks at the end, mean over seeds."""
    return torch.minimum(seen.final["low"], seen.final["high"])


def analyse(runs: Sequence[TrainedRun], setting: Setting) -> Analysis:
    """Draw both panels of Figure 18, and list which task is learned first for each seed."""
    by_level, seen = dict(zip(LEVELS, runs, strict=True)), see(runs)
    return Analysis(
        seen,
        figures=[
            _curves("Training loss of both tasks (Fig 18, left)", by_level, "train", "loss", FITTED),
            _curves("Test accuracy of both tasks (Fig 18, right)", by_level, "test", "accuracy", GENERALISED),
        ],
        tables=[_table(seen, runs[0].experiment.members.seeds)],
    )


def _curves(title: str, runs: Mapping[str, TrainedRun], split: str, metric: str, level: float) -> LineFigure:
    return training_curves(
        title,
        {f"{name} frequency": run for name, run in runs.items()},
        split,
        metric,
        caption=f"{MEAN_AND_RANGE} The dashed line is the level whose first crossing is compared.",
        y_label="training loss (nats)" if metric == "loss" else "test accuracy",
        log_y=metric == "loss",
        references=[Reference("learned", level)],
    )


def _table(seen: Learned, seeds: Sequence[int]) -> Table:
    measured = {"fitted": seen.fitted, "generalises": seen.generalised, "end": seen.final}
    return seed_table(
        "When each task is learned, seed by seed",
        "The optimiser step, between two measurements by interpolation, at which the training loss is first "
        f"below {FITTED} and the test accuracy first above {GENERALISED}; and the test accuracy at the end.",
        seeds,
        {f"{what}, {level}": values[level] for what, values in measured.items() for level in LEVELS},
    )


STUDY = Study(
    name="anchor/frequency",
    doc=__doc__,
    claims=measures_in(__name__),
    experiments=experiments,
    analyse=analyse,
    profiles={
        "quick": Profile(
            QUICK,
            "Quick profile: two layers of one head, width 64, 1200 steps of batch 50 on 2000 sequences, learning rate "
            "6e-3, weight decay 0.3. Measured on 250 sequences.",
        ),
        "paper": Profile(
            PAPER,
            "Paper profile: 1000 sequences, batch 50, 1000 epochs, four layers of four heads, width 400. The paper "
            "gives 1000 to 2000 sequences and 300 to 1000 epochs, and no number of seeds; here 1000, 1000 and five.",
            paper=True,
        ),
    },
    smoke=QUICK.shortened(steps=8),
    chosen_on=SEARCHED,
)
