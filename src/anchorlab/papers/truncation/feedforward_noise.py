"""Noisy recall: the feed-forward network of layer 1 stores the noise.

A trigger is followed by the sequence's own token, or, with probability 1/2, by noise. The second feed-forward layer's
input matrix is cut to a fraction ρ of its rank at every evaluation.

Source: truncated weights, section 4 and Figure 3; settings in its appendix A.5.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.findings import LineFigure, Reference, Table, at_least, at_most, within
from anchorlab.papers.truncation import noisy_recall as noisy
from anchorlab.studies import Measurement, Reading, claim, measures_in, metrics_alone, over_shared, reading
from anchorlab.studies.kit import at_end, curves_against, mean_table
from anchorlab.studies.readings import crossing

KEPT = {noisy.FULL: 1.0, **{f"rho={rho:g}": rho for rho in noisy.FRACTIONS}, noisy.WITHOUT_F2: 0.0}
"""The fraction rho of the rank that each edit keeps; a layer whose input matrix is zero adds nothing."""

FALLS = 0.4
"""The clean loss counts as falling if it is at least this much lower without the layer, in nats."""


class Seen(Reading):
    """What the model predicts on clean sequences, full and cut."""

    learned = crossing("clean", "noise", noisy.alpha_of)
    recalled = crossing("clean", "right", lambda run: (1 - noisy.alpha_of(run)) / 2)

    @reading
    def ends(self) -> noisy.Ends:
        """The predictions at the end, by edit."""
        return noisy.clean_ends(self.first)

    @reading
    def losses(self) -> Float[Tensor, "rank member"]:
        """The loss at the end, from the full model down to rho = 0."""
        return torch.stack([self.ends.loss[edit] for edit in KEPT])


@claim("section 4 and Fig 3", "about 0.5", within(noisy.ALPHA - 0.1, noisy.ALPHA + 0.1))
def full_noise(seen: Seen) -> Float[Tensor, "seed"]:
    """The full model predicts the noise with probability about alpha.

    Mean probability of the noise token on clean sequences at the end, full model.
    """
    return seen.ends.noise[noisy.FULL]


@claim("Fig 3", "about 0.98", at_least(0.95))
def dropped_right(seen: Seen) -> Float[Tensor, "seed"]:
    """Without its second feed-forward layer the model predicts the right token almost surely.

    Mean probability of the right token on clean sequences at the end, rho = 0.
    """
    return seen.ends.right[noisy.WITHOUT_F2]


@claim("Fig 3", "drawn; 0.98 for the right token leaves at most 0.02", at_most(0.05))
def dropped_noise(seen: Seen) -> Float[Tensor, "seed"]:
    """Without its second feed-forward layer the model hardly predicts any noise.

    Mean probability of the noise token on clean sequences at the end, rho = 0.
    """
    return seen.ends.noise[noisy.WITHOUT_F2]


@claim("Fig 3", "drawn; no value in the text", at_least(FALLS))
def clean_loss_falls(seen: Seen) -> Float[Tensor, "seed"]:
    """The loss on clean sequences falls as less of the rank is kept.

    Clean loss of the full model minus that at rho = 0, at the end, mean over seeds.
    """
    return seen.losses[0] - seen.losses[-1]


@claim("Fig 3", "drawn; no order in the text", at_most(0.02))
def loss_order(seen: Seen) -> Measurement | None:
    """Every step down in rho lowers the clean loss or leaves it unchanged.

    Largest rise of the mean clean loss from one rho to the next smaller one (rho = 1, 0.5, 0.25, 0.1, 0.05, 0); judged
    only if the loss falls by at least {FALLS} overall.
    """
    means = seen.losses.mean(dim=1)
    if float(means[0] - means[-1]) < FALLS:
        return None
    return over_shared(seen.losses.T, lambda rows: rows.mean(dim=0).diff().amax())


@claim("section 4 and Fig 4", "probability close to 1 in the first few (~ 5) steps", at_least(0.8))
def noise_first(seen: Seen) -> Float[Tensor, "seed"]:
    """The noise is learned within a few steps.

    Highest share of positions at which noise is the most probable token, after 1 to 10 steps, on clean sequences, full
    model, mean over seeds.
    """
    return noisy.noise_peak(seen.first, "clean")


@claim("section 4", "slower, after the noise", at_least(10.0))
def recall_later(seen: Seen) -> Float[Tensor, "seed"] | None:
    """The recall is learned much later than the noise.

    Step at which the right token's probability reaches half of 1 - alpha, divided by the step at which the noise's
    reaches alpha, on clean sequences, mean over seeds.
    """
    right, noise = seen.recalled["noisy"], seen.learned["noisy"]
    learned_both = bool((right + noise).isfinite().all())
    return right / noise.clamp(min=1) if learned_both else None


LABELS = {edit: "full model (ρ = 1)" if edit == noisy.FULL else f"ρ = {rho:g}" for edit, rho in KEPT.items()}


def _panel(metric: str, title: str, *references: Reference) -> Callable[[Seen], LineFigure]:
    caption = (
        "On sequences without noise (α = 0), along training with α = {alpha}, for the full model and with ρ of the "
        "rank of F₂'s input matrix kept. Mean and range over seeds."
    )
    return lambda seen: noisy.clean_panel(seen.first, metric, LABELS, title, caption, *references)


def _against_rank(seen: Seen) -> LineFigure:
    return curves_against(
        "Clean loss at the end, against the rank kept",
        list(KEPT.values())[::-1],
        {"clean loss": seen.losses.flip(0).T},
        x_label="ρ, fraction of the rank kept",
        y_label="cross-entropy (nats)",
        caption="Mean and range over seeds; ρ = 0 drops layer 1's feed-forward network, ρ = 1 is the full model.",
        y_range=(0.0, None),
    )


def _table(seen: Seen) -> Table:
    accuracies = {edit: {"accuracy": at_end(seen.first, "clean", "accuracy", edit)} for edit in KEPT}
    rows = {label: seen.ends.row(edit) | accuracies[edit] for edit, label in LABELS.items()}
    return mean_table("The end of training, by rank kept", "Means over seeds on clean sequences.", "kept", rows)


STUDY = noisy.noisy_study(
    "truncation/feedforward-noise",
    __doc__,
    measures_in(__name__),
    trains=lambda setting: {"noisy": setting.experiment()},
    reads=Seen,
    draws=(
        _panel("right", "Probability of the right token (Fig 3, left)", Reference("paper, ρ = 0", 0.98)),
        _panel("noise", "Probability of the noise token (Fig 3, middle)"),
        _panel("loss", "Loss on clean sequences (Fig 3, right)"),
        _against_rank,
        _table,
    ),
    keeps=metrics_alone,
    seeds=40,
)
