"""Noisy recall: the noise is learned first, the recall later.

A trigger is followed by the sequence's own token, or, with probability 1/2, by noise. What does the model predict
there, step by step, trained on that from the start or after a training without noise?

Source: truncated weights, section 4 and Figure 4; settings in its appendix A.5.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from anchorlab.findings import LineFigure, Reference, at_least, within
from anchorlab.papers.truncation.noisy_recall import (
    ALPHA,
    FIRST,
    SMOKE,
    Setting,
    by_step,
    noise_peak,
    noisy_and_tuned,
    profiles,
)
from anchorlab.studies.claim import Measurement, claim, measures_in, over, precondition
from anchorlab.studies.ideal import ideal_scores
from anchorlab.studies.kit import along, mean_table
from anchorlab.studies.seeds import SEARCHED
from anchorlab.studies.study import Analysis, Study
from anchorlab.training import TrainedRun


@dataclass(frozen=True)
class Predicted:
    """What a model predicts on noisy sequences.

    Args:
        steps: the steps of evaluation
        fraction: of predictions that are the noise, the most probable token; the quantity of Figure 4
        noise: the mean probability of the noise
        right: the mean probability of the right token
        peak: the highest `fraction` in the first steps
    """

    steps: Sequence[int]
    fraction: Float[Tensor, "member step"]
    noise: Float[Tensor, "member step"]
    right: Float[Tensor, "member step"]
    peak: Float[Tensor, "member"]


@dataclass(frozen=True)
class Seen:
    """What is predicted by the models trained on noise from the start and fine-tuned with it.

    `knew` is the probability of the right token on clean sequences, before fine-tuning.
    """

    afresh: Predicted
    tuned: Predicted
    knew: Float[Tensor, "member"]


def see(runs: Sequence[TrainedRun]) -> Seen:
    """Read what the model trained afresh, and the one fine-tuned, predict."""
    afresh, tuned = runs
    return Seen(_predicted(afresh), _predicted(tuned), along(tuned, "clean", "right")[1][:, 0])


def _predicted(run: TrainedRun) -> Predicted:
    steps, fraction = along(run, "train", "predicts_noise")
    noise, right = (along(run, "train", metric)[1] for metric in ("noise", "right"))
    return Predicted(steps, fraction, noise, right, noise_peak(run, "train"))


@claim(
    "Trained on noise from the start, the model in the end predicts the noise nearly with probability alpha",
    at="Fig 4 left",
    paper="with probability nearly 0.5",
    band=within(ALPHA - 0.1, ALPHA + 0.1),
)
def pretraining_settles(seen: Seen) -> Measurement:
    """Mean probability of the noise at the end, on noisy sequences, mean over seeds."""
    return _settled(seen.afresh)


def _settled(one: Predicted) -> Measurement:
    # not the fraction of Figure 4: where noise and right token have 1/2 each, the most probable one is a coin's side
    return over(one.noise[:, -1], detail=f"the most probable token in {float(one.fraction[:, -1].mean()):.3g}")


@claim(
    "Pretrained without noise and fine-tuned with it, the model first predicts the noise almost always",
    at="Fig 4 right",
    paper="fraction close to 1 in the first 5 or so steps",
    band=at_least(0.8),
)
def tuning_peak(seen: Seen) -> Tensor:
    """Highest fraction of predicting the noise, as the most probable token, after 1 to {FIRST} steps of fine-tuning, on
    noisy sequences, mean over seeds."""
    return seen.tuned.peak


@claim(
    "Fine-tuned with noise, the model in the end predicts the noise nearly with probability alpha",
    at="Fig 4 right",
    paper="with probability nearly 0.5",
    band=within(ALPHA - 0.1, ALPHA + 0.1),
)
def tuning_settles(seen: Seen) -> Measurement:
    """Mean probability of the noise at the end of fine-tuning, on noisy sequences, mean over seeds."""
    return _settled(seen.tuned)


@precondition(
    "Before fine-tuning the model recalls",
    at="Fig 4 right",
    paper="pretrained on clean data",
    band=at_least(0.9),
    of=("tuning-peak", "tuning-settles"),
)
def tuning_knew(seen: Seen) -> Tensor:
    """Probability of the right token on clean sequences before fine-tuning, mean over seeds."""
    return seen.knew


def analyse(runs: Sequence[TrainedRun], setting: Setting) -> Analysis:
    """Draw the two panels of Figure 4, and tabulate the first steps and the end."""
    seen, (afresh, tuned) = see(runs), runs
    return Analysis(
        seen,
        figures=[
            _panel("Trained on noise from the start (Fig 4, left)", "training", seen.afresh, afresh),
            _panel("Trained without noise, then fine-tuned with it (Fig 4, right)", "fine-tuning", seen.tuned, tuned),
        ],
        tables=[
            mean_table(
                "Before, in the first steps, and at the end",
                "Means over seeds on noisy sequences. Fraction: of predictions that are the noise, as the most "
                f"probable token; the peak is the highest after 1 to {FIRST} steps. Noise, right: mean probabilities.",
                "trained",
                {
                    name: {
                        "fraction before": one.fraction[:, 0],
                        "noise before": one.noise[:, 0],
                        "right before": one.right[:, 0],
                        "fraction at its peak": one.peak,
                        "fraction, end": one.fraction[:, -1],
                        "noise, end": one.noise[:, -1],
                        "right, end": one.right[:, -1],
                    }
                    for name, one in (("from the start", seen.afresh), ("fine-tuned", seen.tuned))
                },
            )
        ],
    )


def _panel(title: str, time: str, one: Predicted, run: TrainedRun) -> LineFigure:
    ideal = ideal_scores(run.experiment.task, "train")
    return by_step(
        title,
        one.steps,
        {
            "fraction of predicting the noise": one.fraction,
            "probability of the noise": one.noise,
            "probability of the right token": one.right,
        },
        "The share of predictions that are the noise token, and the probabilities of that token and of the sequence's "
        "own, on noisy sequences (α = 0.5); where both are one token, it counts as both. Mean and range over seeds. "
        "Dashed: the ideal predictor, which knows the law.",
        x_label=f"step of {time} + 1",
        y_label="fraction, probability",
        references=[Reference("noise, ideal", ideal["noise"]), Reference("right token, ideal", ideal["right"])],
    )


STUDY = Study(
    name="truncation/noise-first",
    doc=__doc__,
    claims=measures_in(__name__),
    experiments=noisy_and_tuned,
    analyse=analyse,
    profiles=profiles(tuned=True),
    smoke=SMOKE,
    chosen_on=SEARCHED,
)
