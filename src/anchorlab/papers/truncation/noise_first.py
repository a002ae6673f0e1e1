"""Noisy recall: the noise is learned first, the recall later.

A trigger is followed by the sequence's own token, or, with probability 1/2, by noise. What does the model predict there
at each step, trained with noise from the start or only after training without it?

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
    Setting,
    by_step,
    noise_peak,
    noisy_and_tuned,
    noisy_study,
)
from anchorlab.studies.claim import Measurement, claim, measures_in, over, precondition
from anchorlab.studies.ideal import ideal_scores
from anchorlab.studies.kit import along, mean_table
from anchorlab.studies.study import Analysis
from anchorlab.training import TrainedRun


@dataclass(frozen=True)
class Seen:
    """The runs trained on noise from the start, and fine-tuned with it."""

    afresh: TrainedRun
    tuned: TrainedRun


@claim("Fig 4 left", "with probability nearly 0.5", within(ALPHA - 0.1, ALPHA + 0.1))
def pretraining_settles(seen: Seen) -> Measurement:
    """Trained on noise from the start, the model in the end predicts the noise nearly with probability alpha.

    Mean probability of the noise at the end, on noisy sequences, mean over seeds.
    """
    return _settled(seen.afresh)


def _settled(run: TrainedRun) -> Measurement:
    # not the fraction of Figure 4: where noise and right token have 1/2 each, the most probable one is a coin's side
    noise, fraction = (_predicted(run, metric)[:, -1] for metric in ("noise", "predicts_noise"))
    return over(noise, detail=f"the most probable token in {float(fraction.mean()):.3g}")


def _predicted(run: TrainedRun, metric: str) -> Float[Tensor, "member step"]:
    """Return a metric on noisy sequences, along training."""
    return along(run, "train", metric)[1]


@claim("Fig 4 right", "fraction close to 1 in the first 5 or so steps", at_least(0.8))
def tuning_peak(seen: Seen) -> Float[Tensor, "seed"]:
    """Pretrained without noise and fine-tuned with it, the model first predicts the noise almost always.

    Highest share of positions at which noise is the most probable token, after 1 to {FIRST} steps of fine-tuning, on
    noisy sequences, mean over seeds.
    """
    return noise_peak(seen.tuned, "train")


@claim("Fig 4 right", "with probability nearly 0.5", within(ALPHA - 0.1, ALPHA + 0.1))
def tuning_settles(seen: Seen) -> Measurement:
    """Fine-tuned with noise, the model in the end predicts the noise nearly with probability alpha.

    Mean probability of the noise at the end of fine-tuning, on noisy sequences, mean over seeds.
    """
    return _settled(seen.tuned)


@precondition("Fig 4 right", "pretrained on clean data", at_least(0.9), of=("tuning-peak", "tuning-settles"))
def tuning_knew(seen: Seen) -> Float[Tensor, "seed"]:
    """Before fine-tuning the model recalls.

    Probability of the right token on clean sequences before fine-tuning, mean over seeds.
    """
    return along(seen.tuned, "clean", "right")[1][:, 0]


def analyse(runs: Sequence[TrainedRun], setting: Setting) -> Analysis:
    """Draw the two panels of Figure 4, and tabulate the first steps and the end."""
    seen = Seen(*runs)
    return Analysis(
        seen,
        figures=[
            _panel("Trained on noise from the start (Fig 4, left)", "training", seen.afresh),
            _panel("Trained without noise, then fine-tuned with it (Fig 4, right)", "fine-tuning", seen.tuned),
        ],
        tables=[
            mean_table(
                "Before, in the first steps, and at the end",
                "Means over seeds on noisy sequences. Fraction: of predictions that are the noise, as the most "
                f"probable token; the peak is the highest after 1 to {FIRST} steps. Noise, right: mean probabilities.",
                "trained",
                {"from the start": _columns(seen.afresh), "fine-tuned": _columns(seen.tuned)},
            )
        ],
    )


def _columns(run: TrainedRun) -> dict[str, Float[Tensor, "member"]]:
    names = {"fraction": "predicts_noise", "noise": "noise", "right": "right"}
    values = {name: _predicted(run, metric) for name, metric in names.items()}
    return {
        **{f"{name} before": value[:, 0] for name, value in values.items()},
        "fraction at its peak": noise_peak(run, "train"),
        **{f"{name}, end": value[:, -1] for name, value in values.items()},
    }


def _panel(title: str, time: str, run: TrainedRun) -> LineFigure:
    ideal = ideal_scores(run.experiment.task, "train")
    steps, fraction = along(run, "train", "predicts_noise")
    return by_step(
        title,
        steps,
        {
            "fraction of predicting the noise": fraction,
            "probability of the noise": _predicted(run, "noise"),
            "probability of the right token": _predicted(run, "right"),
        },
        "The share of predictions that are the noise token, and the probabilities of that token and of the sequence's "
        "own, on noisy sequences (α = 0.5); where both are one token, it counts as both. Mean and range over seeds. "
        "Dashed: the ideal predictor, which knows the law.",
        x_label=f"step of {time} + 1",
        y_label="fraction, probability",
        references=[Reference("noise, ideal", ideal["noise"]), Reference("right token, ideal", ideal["right"])],
    )


STUDY = noisy_study("truncation/noise-first", __doc__, measures_in(__name__), noisy_and_tuned, analyse, tuned=True)
