"""Low frequency is learned before high frequency.

Two anchors have the same operation (low frequency: the answer is the key for both) or different ones (high frequency:
the key for one, its successor for the other).

Source: anchor functions, section 6.1 and Figure 18.
"""

from jaxtyping import Float
from torch import Tensor

from anchorlab.findings import at_least
from anchorlab.models import DecoderSpec
from anchorlab.papers.anchor.settings import BATCH_NOTE, Setting, paper_recipe
from anchorlab.studies import SEARCHED, Profile, Study, claim, measures_in, metrics_alone, quick_model, quick_recipe
from anchorlab.studies.draws import curves, seed_by_seed
from anchorlab.studies.kit import MEAN_AND_RANGE
from anchorlab.studies.readings import ByRun, Reading, at_end, crossing
from anchorlab.tasks import task
from anchorlab.training import Evaluation, Experiment

FITTED, GENERALISED = 0.5, 0.9  # a task is fitted below this training loss, and generalises above this test accuracy

_RECIPE = quick_recipe(2000, steps=1200, evaluations=80)
QUICK = Setting(quick_model(), _RECIPE.replace(evaluation=_RECIPE.evaluation.replace(size=250)), seeds=14)
# both tasks are fitted within the first hundred epochs, of 20 steps each: the loss is measured after each of these
_EVALUATION = Evaluation(every=5, at=tuple(range(100)))
PAPER = Setting(DecoderSpec(), paper_recipe(1000, epochs=1000).replace(evaluation=_EVALUATION), seeds=5)


def experiments(setting: Setting) -> dict[str, Experiment]:
    """Return the experiments at low and at high frequency."""
    return {
        level: setting.experiment(task("anchor/frequency", level=level), f"{level} frequency")
        for level in ("low", "high")
    }


class Seen(Reading):
    """When each task is learned; one that is not learned in the training counts as later than any that is."""

    fitted = crossing("train", "loss", FITTED, falling=True)
    generalises = crossing("test", "accuracy", GENERALISED)
    end = at_end("test", "accuracy")


@claim("section 6.1 and Fig 18", "the low-frequency task is fitted faster; no value in the text", at_least(1.05))
def slower(seen: Seen) -> Float[Tensor, "seed"]:
    """The high-frequency task takes longer to fit.

    Steps until the training loss is below {FITTED}, ratio of high to low frequency, mean over seeds; a task that is not
    fitted takes the whole training.
    """
    return _times_longer(seen, seen.fitted)


@claim("section 6.1 and Fig 18", "the low-frequency test accuracy rises faster; no value in the text", at_least(1.05))
def generalises_later(seen: Seen) -> Float[Tensor, "seed"]:
    """The high-frequency task generalises later.

    Steps until the test accuracy is above {GENERALISED}, ratio of high to low frequency, mean over seeds; a task that
    does not generalise takes the whole training.
    """
    return _times_longer(seen, seen.generalises)


def _times_longer(seen: Seen, steps: ByRun[Tensor]) -> Float[Tensor, "learned"]:
    """Return the ratio of steps, high to low frequency, for members that learn at least one of the two tasks."""
    low, high = (one.clamp(max=seen.first.experiment.steps) for one in (steps["low"], steps["high"]))
    return (high / low)[steps["low"].isfinite() | steps["high"].isfinite()]


CAPTION = f"{MEAN_AND_RANGE} The dashed line is the level whose first crossing is compared."

STUDY = Study(
    "anchor/frequency",
    __doc__,
    measures_in(__name__),
    trains=experiments,
    reads=Seen,
    draws=(
        curves(
            "Training loss of both tasks (Fig 18, left)",
            "train",
            "loss",
            caption=CAPTION,
            y_label="training loss (nats)",
            log_y=True,
            learned=FITTED,
        ),
        curves("Test accuracy of both tasks (Fig 18, right)", "test", "accuracy", caption=CAPTION, learned=GENERALISED),
        seed_by_seed(
            "When each task is learned, seed by seed",
            "The optimiser step, interpolated between measurements, at which the training loss is first "
            f"below {FITTED} and the test accuracy first above {GENERALISED}, a dash if never; and the test accuracy "
            "at the end.",
            Seen.fitted,
            Seen.generalises,
            Seen.end,
        ),
    ),
    keeps=metrics_alone,
    profiles={
        "quick": Profile(QUICK, "Measured on 250 sequences."),
        "paper": Profile(
            PAPER,
            "The learning rates are those of appendix A. The text gives neither the number of sequences, nor the "
            "length of this training, nor the number of seeds, and Figure 18 shows 300 to 1000 epochs; these are "
            f"ours. {BATCH_NOTE} Measured after every fifth epoch, of 20 steps, and after each of the first hundred.",
            paper=True,
        ),
    },
    smoke=QUICK.shortened(steps=8),
    chosen_on=SEARCHED,
)
