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
from anchorlab.papers.anchor.settings import BATCH_NOTE, Setting, paper_recipe
from anchorlab.studies.claim import claim, measures_in
from anchorlab.studies.kit import MEAN_AND_RANGE, along, at_end, seed_table, training_curves
from anchorlab.studies.quick import quick_model, quick_recipe
from anchorlab.studies.seeds import SEARCHED
from anchorlab.studies.study import Analysis, Profile, Study, metrics_alone
from anchorlab.tasks import task
from anchorlab.training import Evaluation, Experiment, TrainedRun

LEVELS = ("low", "high")
FITTED, GENERALISED = 0.5, 0.9  # a task is fitted below this training loss, and generalises above this test accuracy

_RECIPE = quick_recipe(2000, steps=1200, evaluations=80)
QUICK = Setting(quick_model(), _RECIPE.replace(evaluation=_RECIPE.evaluation.replace(size=250)), seeds=6)
# both tasks are fitted within the first hundred epochs, of 20 steps: there the loss is measured after each
_EVALUATION = Evaluation(every=5, at=tuple(range(100)))
PAPER = Setting(DecoderSpec(), paper_recipe(1000, epochs=1000).replace(evaluation=_EVALUATION), seeds=5)


def experiments(setting: Setting) -> list[Experiment]:
    """Return the experiments at low and at high frequency."""
    return [setting.experiment(task("anchor/frequency", level=level), f"{level} frequency") for level in LEVELS]


@dataclass(frozen=True)
class Learned:
    """The step at which each task passes its level; infinite for a member that does not within the training."""

    fitted: Mapping[str, Float[Tensor, "member"]]  # step at which the training loss first falls below `FITTED`
    generalised: Mapping[str, Float[Tensor, "member"]]  # at which the test accuracy first rises above `GENERALISED`
    final: Mapping[str, Float[Tensor, "member"]]  # test accuracy at the end
    steps: int  # of the training


def see(runs: Sequence[TrainedRun]) -> Learned:
    """Read when each task is learned, from the runs at low, then at high frequency."""
    by_level = dict(zip(LEVELS, runs, strict=True))
    return Learned(
        {one: _step(run, "train", "loss", FITTED, falling=True) for one, run in by_level.items()},
        {one: _step(run, "test", "accuracy", GENERALISED) for one, run in by_level.items()},
        {one: at_end(run, "test", "accuracy") for one, run in by_level.items()},
        runs[0].experiment.steps,
    )


def _step(run: TrainedRun, split: str, metric: str, level: float, falling: bool = False) -> Float[Tensor, "member"]:
    return first_crossing(*along(run, split, metric), level, falling).nan_to_num(nan=torch.inf)


def _learned(steps: Mapping[str, Float[Tensor, "member"]]) -> Bool[Tensor, "member"]:
    """Return which members learn at least one of the tasks; of the others nothing is known about the order."""
    return steps["low"].isfinite() | steps["high"].isfinite()


def _low_first(steps: Mapping[str, Float[Tensor, "member"]]) -> Bool[Tensor, "learned"]:
    """Return, for members that learn a task, whether the low-frequency task comes first; one never learned is last."""
    return (steps["low"] < steps["high"])[_learned(steps)]


@claim("section 6.1 and Fig 18", "the low-frequency task is fitted faster", within(0.8, 1.0))
def loss_first(seen: Learned) -> Bool[Tensor, "seed"]:
    """The training loss of the low-frequency task falls first.

    Share of seeds whose low-frequency training loss is the first below {FITTED}; a loss that never is counts as later.
    """
    return _low_first(seen.fitted)


@claim("section 6.1 and Fig 18", "its test accuracy rises faster", within(0.8, 1.0))
def accuracy_first(seen: Learned) -> Bool[Tensor, "seed"]:
    """The low-frequency task generalises first.

    Share of seeds whose low-frequency test accuracy is the first above {GENERALISED}; an accuracy that never is counts
    as later.
    """
    return _low_first(seen.generalised)


@claim("section 6.1 and Fig 18", "slower; no value in the text", at_least(1.05))
def slower(seen: Learned) -> Float[Tensor, "seed"]:
    """The high-frequency task takes longer.

    Steps until the training loss is below {FITTED}, ratio of high to low frequency, mean over seeds; a task that is not
    fitted takes the whole training.
    """
    steps = {level: value.clamp(max=seen.steps) for level, value in seen.fitted.items()}
    return (steps["high"] / steps["low"])[_learned(seen.fitted)]


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
        f"below {FITTED} and the test accuracy first above {GENERALISED}, a dash if never; and the test accuracy at "
        "the end.",
        seeds,
        {f"{what}, {level}": values[level] for what, values in measured.items() for level in LEVELS},
    )


STUDY = Study(
    name="anchor/frequency",
    doc=__doc__,
    claims=measures_in(__name__),
    experiments=experiments,
    analyse=analyse,
    reads=metrics_alone,
    profiles={
        "quick": Profile(
            QUICK,
            "Quick profile: two layers of one head, width 64, 1200 steps of batch 50 on 2000 sequences, learning rate "
            "6e-3, weight decay 0.3. Measured on 250 sequences.",
        ),
        "paper": Profile(
            PAPER,
            "Paper profile: four layers of four heads, width 400, and the learning rates of appendix A, whose schedule "
            "has 4000 epochs. The text gives neither the number of sequences, nor the length of this training, nor the "
            "number of seeds, and Figure 18 shows 300 to 1000 epochs; 1000 sequences, 1000 epochs and five seeds are "
            f"ours. {BATCH_NOTE} Measured after every fifth epoch, of 20 steps, and after each of the first hundred.",
            paper=True,
        ),
    },
    smoke=QUICK.shortened(steps=8),
    chosen_on=SEARCHED,
)
