"""Noisy recall: the noise is learned first, the recall later.

A trigger is followed by the sequence's own token, or, with probability 1/2, by noise. What does the model predict there
at each step, trained with noise from the start or only after training without it?

Source: truncated weights, section 4 and Figure 4; settings in its appendix A.5.
"""

from collections.abc import Callable, Mapping

from jaxtyping import Bool, Float
from torch import Tensor

from anchorlab.findings import LineFigure, Reference, Table, at_least, within
from anchorlab.papers.truncation.noisy_recall import ALPHA, FIRST, by_step, noise_peak, noisy_and_tuned, noisy_study
from anchorlab.studies import Measurement, Reading, claim, kit, measures_in, over, precondition, reading
from anchorlab.studies.ideal import ideal_scores
from anchorlab.studies.readings import along


class Seen(Reading):
    """What is predicted on noisy sequences along training, with noise from the start and in fine-tuning with it."""

    fraction = along("train", "predicts_noise")
    noise = along("train", "noise")
    right = along("train", "right")
    recall = along("clean", "right")

    @reading
    def kept(self) -> Mapping[str, Bool[Tensor, "seed"]]:
        """By run, whether each seed still has a probability of the noise at the end; a diverged one has none."""
        return {label: values[:, -1].isfinite() for label, values in self.noise.items()}


@claim("Fig 4 left", "with probability nearly 0.5", within(ALPHA - 0.1, ALPHA + 0.1))
def pretraining_settles(seen: Seen) -> Measurement:
    """Trained on noise from the start, the model in the end predicts the noise nearly with probability alpha.

    Mean probability of the noise at the end, on noisy sequences, mean over seeds that do not diverge.
    """
    return _settled(seen, "noisy")


def _settled(seen: Seen, label: str) -> Measurement:
    # not the fraction of Figure 4: if noise and right token have 1/2 each, chance decides which is the most probable
    kept = seen.kept[label]
    lost = f"; {int((~kept).sum())} of {len(kept)} seeds diverged" if not kept.all() else ""
    fraction = float(seen.fraction[label][kept, -1].mean())
    return over(seen.noise[label][kept, -1], detail=f"the most probable token in {fraction:.3g}{lost}")


@claim("Fig 4 right", "fraction close to 1 in the first 5 or so steps", at_least(0.8))
def tuning_peak(seen: Seen) -> Float[Tensor, "seed"]:
    """Pretrained without noise and fine-tuned with it, the model first predicts the noise almost always.

    Highest share of positions at which noise is the most probable token, after 1 to {FIRST} steps of fine-tuning, on
    noisy sequences, mean over seeds.
    """
    return noise_peak(seen.runs["tuned"], "train")


@claim("Fig 4 right", "with probability nearly 0.5", within(ALPHA - 0.1, ALPHA + 0.1))
def tuning_settles(seen: Seen) -> Measurement:
    """Fine-tuned with noise, the model in the end predicts the noise nearly with probability alpha.

    Mean probability of the noise at the end of fine-tuning, on noisy sequences, mean over seeds that do not diverge.
    """
    return _settled(seen, "tuned")


@precondition("Fig 4 right", "pretrained on clean data", at_least(0.9), of=("tuning-peak", "tuning-settles"))
def tuning_knew(seen: Seen) -> Float[Tensor, "seed"]:
    """Before fine-tuning the model recalls the right token.

    Probability of the right token on clean sequences before fine-tuning, mean over seeds.
    """
    return seen.recall["tuned"][:, 0]


def _panel(title: str, time: str, label: str) -> Callable[[Seen], LineFigure]:
    def draw(seen: Seen) -> LineFigure:
        run, kept = seen.runs[label], seen.kept[label]
        ideal = ideal_scores(run.experiment.task, "train")
        return by_step(
            title,
            kit.along(run, "train", "predicts_noise")[0],
            {
                "fraction of predicting the noise": seen.fraction[label][kept],
                "probability of the noise": seen.noise[label][kept],
                "probability of the right token": seen.right[label][kept],
            },
            "The share of predictions that are the noise token, and the probabilities of that token and of the "
            "sequence's own, on noisy sequences (α = 0.5); where both are one token, it counts as both. Mean and range "
            "over seeds that do not diverge. Dashed: the ideal predictor, which knows the law.",
            x_label=f"step of {time} + 1",
            y_label="fraction, probability",
            references=[Reference("noise, ideal", ideal["noise"]), Reference("right token, ideal", ideal["right"])],
        )

    return draw


def _table(seen: Seen) -> Table:
    def columns(label: str) -> dict[str, Float[Tensor, "member"]]:
        values = {"fraction": seen.fraction[label], "noise": seen.noise[label], "right": seen.right[label]}
        return {
            **{f"{name} before": value[:, 0] for name, value in values.items()},
            "fraction at its peak": noise_peak(seen.runs[label], "train"),
            **{f"{name}, end": value[seen.kept[label], -1] for name, value in values.items()},
        }

    return kit.mean_table(
        "Before, in the first steps, and at the end",
        "Means over seeds on noisy sequences, at the end over those that do not diverge. Fraction: of predictions that "
        f"are the noise, as the most probable token; the peak is the highest after 1 to {FIRST} steps. Noise, right: "
        "mean probabilities.",
        "trained",
        {"from the start": columns("noisy"), "fine-tuned": columns("tuned")},
    )


STUDY = noisy_study(
    "truncation/noise-first",
    __doc__,
    measures_in(__name__),
    trains=noisy_and_tuned,
    reads=Seen,
    draws=(
        _panel("Trained on noise from the start (Fig 4, left)", "training", "noisy"),
        _panel("Trained without noise, then fine-tuned with it (Fig 4, right)", "fine-tuning", "tuned"),
        _table,
    ),
    seeds=40,
)
