"""Noisy recall: the feed-forward network of layer 1 stores the noise.

A trigger is followed by the sequence's own token, or, with probability 1/2, by noise. The second feed-forward layer's
input matrix is cut to a fraction ρ of its rank at every evaluation.

Source: truncated weights, section 4 and Figure 3; settings in its appendix A.5.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.findings import LineFigure, Reference, at_least, at_most, within
from anchorlab.lens import first_crossing
from anchorlab.papers.truncation.noisy_recall import (
    ALPHA,
    FRACTIONS,
    FULL,
    WITHOUT_F2,
    Setting,
    by_step,
    clean_ends,
    noise_peak,
    noisy_study,
)
from anchorlab.studies.claim import Measurement, claim, measures_in, over
from anchorlab.studies.ideal import ideal_scores
from anchorlab.studies.kit import along, at_end, curves_against, mean_table
from anchorlab.studies.shared_seeds import over_shared
from anchorlab.studies.study import Analysis, metrics_alone
from anchorlab.training import Experiment, TrainedRun

KEPT = {FULL: 1.0, **{f"rho={rho:g}": rho for rho in FRACTIONS}, WITHOUT_F2: 0.0}
"""The fraction rho of the rank that each edit keeps; a layer whose input matrix is zero adds nothing."""

FALLS = 0.4
"""The clean loss falls if it is lower by this much without the layer, in nats."""


def experiments(setting: Setting) -> list[Experiment]:
    """Return the only experiment: training with noise."""
    return [setting.experiment()]


def losses(run: TrainedRun) -> Float[Tensor, "rank member"]:
    """Return the loss on clean sequences at the end, from the full model down to rho = 0."""
    return torch.stack([at_end(run, "clean", "loss", edit) for edit in KEPT])


@claim("section 4 and Fig 3", "about 0.5", within(ALPHA - 0.1, ALPHA + 0.1))
def full_noise(run: TrainedRun) -> Float[Tensor, "seed"]:
    """The full model predicts the noise with probability about alpha.

    Mean probability of the noise token on clean sequences at the end, full model.
    """
    return at_end(run, "clean", "noise")


@claim("Fig 3", "about 0.98", within(0.95, 1.0))
def dropped_right(run: TrainedRun) -> Float[Tensor, "seed"]:
    """Without its second feed-forward layer the model predicts the right token almost surely.

    Mean probability of the right token on clean sequences at the end, rho = 0.
    """
    return at_end(run, "clean", "right", WITHOUT_F2)


@claim("Fig 3", "about 0", at_most(0.05))
def dropped_noise(run: TrainedRun) -> Float[Tensor, "seed"]:
    """Without its second feed-forward layer the model hardly predicts any noise.

    Mean probability of the noise token on clean sequences at the end, rho = 0.
    """
    return at_end(run, "clean", "noise", WITHOUT_F2)


@claim("Fig 3", "lower for smaller rho, lowest at rho = 0", at_least(FALLS))
def clean_loss_falls(run: TrainedRun) -> Float[Tensor, "seed"]:
    """The loss on clean sequences falls as less of the rank is kept.

    Clean loss of the full model minus that at rho = 0, at the end, mean over seeds.
    """
    found = losses(run)
    return found[0] - found[-1]


@claim("Fig 3", "ordered by rho", at_most(0.02))
def loss_order(run: TrainedRun) -> Measurement | None:
    """Every step down in rho lowers the clean loss or leaves it.

    Largest rise of the mean clean loss from one rho to the next smaller one (rho = 1, 0.5, 0.25, 0.1, 0.05, 0); judged
    only if the loss falls by at least {FALLS} overall.
    """
    found = losses(run)
    means = found.mean(dim=1)
    if float(means[0] - means[-1]) < FALLS:
        return None
    return over_shared(found.T, lambda rows: rows.mean(dim=0).diff().amax())


@claim("section 4 and Fig 4", "fraction of predicting the noise near 1 within about 5 to 10 steps", at_least(0.8))
def noise_first(run: TrainedRun) -> Float[Tensor, "seed"]:
    """The noise is learned within a few steps.

    Highest share of positions at which noise is the most probable token, after 1 to 10 steps, on clean sequences, full
    model, mean over seeds.
    """
    return noise_peak(run, "clean")


@claim("section 4", "slower, after the noise", at_least(10.0), always=True)
def recall_later(run: TrainedRun) -> Measurement | None:
    """The recall is learned much later than the noise.

    Step at which the right token's probability reaches half of 1 - alpha, divided by the step at which the noise's
    reaches alpha, on clean sequences, lowest over seeds.
    """
    right = first_crossing(*along(run, "clean", "right"), (1 - ALPHA) / 2)
    delay = right / first_crossing(*along(run, "clean", "noise"), ALPHA).clamp(min=1)  # by interpolation
    return None if bool(delay.isnan().any()) else over(delay, taken=torch.min)  # a member learned only one of them


def analyse(runs: Sequence[TrainedRun], setting: Setting) -> Analysis:
    """Draw the three panels of Figure 3 and the final loss against rho, and tabulate the end."""
    (run,) = runs
    ideal, ends = ideal_scores(run.experiment.task, "clean"), clean_ends(run)
    full = {metric: Reference("full model, ideal", value) for metric, value in ideal.items()}
    paper = Reference("paper, ρ = 0", 0.98)
    return Analysis(
        run,
        figures=[
            _panel(run, "right", "Probability of the right token (Fig 3, left)", paper, full["right"]),
            _panel(run, "noise", "Probability of the noise token (Fig 3, middle)", full["noise"]),
            replace(
                _panel(run, "loss", "Loss on clean sequences (Fig 3, right)", full["loss"]),
                y_label="cross-entropy (nats)",
                log_y=True,
                y_range=(None, None),
            ),
            curves_against(
                "Clean loss at the end, against the rank kept",
                list(KEPT.values())[::-1],
                {"clean loss": losses(run).flip(0).T},
                x_label="ρ, fraction of the rank kept",
                y_label="cross-entropy (nats)",
                caption="Mean and range over seeds; ρ = 0 drops layer 1's feed-forward network, ρ = 1 is the full "
                "model.",
                y_range=(0.0, None),
            ),
        ],
        tables=[
            mean_table(
                "The end of training, by rank kept",
                "Means over seeds on clean sequences.",
                "kept",
                {_label(edit): {**ends.row(edit), "accuracy": at_end(run, "clean", "accuracy", edit)} for edit in KEPT},
            )
        ],
    )


def _label(edit: str) -> str:
    return "full model (ρ = 1)" if edit == FULL else f"ρ = {KEPT[edit]:g}"


def _panel(run: TrainedRun, metric: str, title: str, *references: Reference) -> LineFigure:
    steps, _ = along(run, "clean", metric)
    return by_step(
        title,
        steps,
        {_label(edit): along(run, "clean", metric, edit)[1] for edit in KEPT},
        "On sequences without noise (α = 0), along training with α = 0.5, for the full model and with ρ of the rank of "
        "F₂'s input matrix kept. Mean and range over seeds.",
        references=references,
    )


STUDY = replace(
    noisy_study("truncation/feedforward-noise", __doc__, measures_in(__name__), experiments, analyse),
    keeps=metrics_alone,
)
