"""Noisy recall: which layer holds the noise, by kinds of feed-forward layers.

Each of the two feed-forward layers is a perceptron, one matrix, or missing. Dropping which of them after training
removes the noise?

Source: truncated weights, appendix A.4 and Figures 9 to 12.
"""

from itertools import product

import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.findings import LineFigure, Reference, Table, at_least, at_most, within
from anchorlab.papers.truncation import noisy_recall as noisy
from anchorlab.studies import Measurement, Reading, claim, measures_in, over_shared
from anchorlab.studies.kit import curves_against
from anchorlab.studies.readings import Quantity
from anchorlab.training import Experiment

MLP_MLP: noisy.FeedForwards = ("mlp", "mlp")
MLP_LINEAR: noisy.FeedForwards = ("mlp", "linear")
LINEAR_MLP: noisy.FeedForwards = ("linear", "mlp")
NONE: noisy.FeedForwards = ("none", "none")

CHOICES = {
    MLP_MLP: "F₁ and F₂ perceptrons (Fig 9)",
    MLP_LINEAR: "F₁ a perceptron, F₂ linear (Fig 10)",
    LINEAR_MLP: "F₁ linear, F₂ a perceptron (Fig 11)",
    NONE: "No feed-forward layers, W_O¹ cut (Fig 12)",
}
"""The kinds of F_1 and F_2, with the titles of their figures."""

_PANELS = {"right": "Probability of the right token", "noise": "Probability of the noise token", "loss": "Loss"}
"""The panels of each figure, by metric."""

BEST, LOWEST = "rho=0.05", "rho=0.01"
"""Cuts of W_O that the paper shows: one that helps, and one that destroys the predictions."""


def experiments(setting: noisy.Setting) -> dict[noisy.FeedForwards, Experiment]:
    """Return an experiment for each choice of layers."""
    return {
        choice: setting.experiment(
            "noisy recall" if choice == MLP_MLP else f"noisy recall, {choice[0]} and {choice[1]}", choice
        )
        for choice in CHOICES
    }


class Seen(Reading):
    """What each choice of layers predicts on clean sequences at the end, full and cut."""

    ends = Quantity(noisy.clean_ends)


@claim("Fig 9", "high", at_least(0.6))
def mlp_mlp_without_f1(seen: Seen) -> Float[Tensor, "seed"]:
    """Two perceptrons: without F_1 the noise is predicted with high probability.

    Probability of the noise token without F_1, on clean sequences at the end, mean over seeds.
    """
    return seen.ends[MLP_MLP].noise[noisy.WITHOUT_F1]


@claim("Fig 10", "helps", at_least(0.1))
def mlp_linear_without_f2(seen: Seen) -> Float[Tensor, "seed"]:
    """Perceptron, then linear: without F_2 the right token is more probable.

    Probability of the right token without F_2 minus that of the full model, at the end, mean over seeds.
    """
    return seen.ends[MLP_LINEAR].gain(noisy.WITHOUT_F2)


@claim("Fig 10", "helps", at_least(0.1))
def mlp_linear_without_f1(seen: Seen) -> Float[Tensor, "seed"]:
    """Perceptron, then linear: without F_1 the right token is more probable too.

    Probability of the right token without F_1 minus that of the full model, at the end, mean over seeds.
    """
    return seen.ends[MLP_LINEAR].gain(noisy.WITHOUT_F1)


@claim("Fig 10", "lower loss", at_least(0.0))
def mlp_linear_f1_is_better(seen: Seen) -> Float[Tensor, "seed"]:
    """Perceptron, then linear: dropping F_1 gives the lower loss of the two.

    Clean loss without F_2 minus that without F_1, at the end, mean over seeds.
    """
    return seen.ends[MLP_LINEAR].loss[noisy.WITHOUT_F2] - seen.ends[MLP_LINEAR].loss[noisy.WITHOUT_F1]


@claim("Fig 11", "helps", at_least(0.1))
def linear_mlp_without_f2(seen: Seen) -> Float[Tensor, "seed"]:
    """Linear, then perceptron: without F_2 the right token is more probable.

    Probability of the right token without F_2 minus that of the full model, at the end, mean over seeds.
    """
    return seen.ends[LINEAR_MLP].gain(noisy.WITHOUT_F2)


@claim("Fig 11", "predicts the noise more", at_least(0.1))
def linear_mlp_without_f1(seen: Seen) -> Float[Tensor, "seed"]:
    """Linear, then perceptron: without F_1 the noise is more probable.

    Probability of the noise token without F_1 minus that of the full model, at the end, mean over seeds.
    """
    return seen.ends[LINEAR_MLP].noise[noisy.WITHOUT_F1] - seen.ends[LINEAR_MLP].noise[noisy.FULL]


@claim("Fig 12", "a little", within(0.01, 0.3))
def none_best(seen: Seen) -> Float[Tensor, "seed"]:
    """No feed-forward layers: cutting W_O of layer 0 to rho = 0.05 helps a little.

    Probability of the right token at rho = 0.05 minus that of the full model, at the end, mean over seeds.
    """
    return seen.ends[NONE].gain(BEST)


@claim("appendix A.4", "clearly smaller", at_least(0.1))
def none_less(seen: Seen) -> Measurement:
    """Cutting W_O of layer 0 helps less than dropping a feed-forward layer does in models that have them.

    Gain in the right token's probability from dropping the better of the two feed-forward layers, smallest over
    choices of layers, minus the gain at rho = 0.05 in the model without feed-forward layers; each a mean over seeds.
    """
    both, some = (noisy.WITHOUT_F1, noisy.WITHOUT_F2), [choice for choice in CHOICES if choice != NONE]
    dropped = torch.stack([torch.stack([seen.ends[choice].gain(edit) for edit in both]) for choice in some])
    gains = torch.cat([dropped.flatten(0, 1), seen.ends[NONE].gain(BEST)[None]])

    def difference(rows: Tensor) -> Tensor:
        means = rows.mean(dim=0)
        return means[:-1].view(len(some), len(both)).amax(dim=1).amin() - means[-1]  # NaN stays NaN: not measured

    return over_shared(gains.T, difference)


@claim("appendix A.4 and Fig 12", "destroyed", at_most(0.5))
def none_destroyed(seen: Seen) -> Float[Tensor, "seed"]:
    """No feed-forward layers: rho = 0.01 destroys the model's predictions.

    Probability of the right token at rho = 0.01 divided by the full model's, at the end, mean over seeds.
    """
    return seen.ends[NONE].right[LOWEST] / seen.ends[NONE].right[noisy.FULL]


def _panel(seen: Seen, choice: noisy.FeedForwards, metric: str) -> LineFigure:
    what, cuts = _PANELS[metric], ("rho=0", LOWEST, BEST) if choice == NONE else (noisy.WITHOUT_F1, noisy.WITHOUT_F2)
    return noisy.clean_panel(
        seen.runs[choice],
        metric,
        {edit: _label(edit) for edit in (noisy.FULL, *cuts)},
        f"{CHOICES[choice]}: the {what.rpartition(' of the ')[2].lower()}",
        f"{what} on clean sequences, along training with α = {{alpha}}; mean and range over seeds.",
    )


def _label(edit: str) -> str:
    named = {noisy.FULL: "full model", noisy.WITHOUT_F1: "without F₁", noisy.WITHOUT_F2: "without F₂"}
    return named.get(edit, f"ρ = {edit.removeprefix('rho=')}")


def _against_rho(seen: Seen) -> LineFigure:
    ends = seen.ends[NONE]
    kept = {f"rho={rho:g}": rho for rho in reversed(noisy.OUTPUT_FRACTIONS)} | {noisy.FULL: 1.0}
    curves = {"right token": ends.right, "noise token": ends.noise}
    return curves_against(
        "No feed-forward layers: predictions against the rank of W_O¹ that is kept",
        list(kept.values()),
        {label: torch.stack([values[edit] for edit in kept], dim=1) for label, values in curves.items()},
        x_label="ρ, fraction of the rank kept",
        y_label="probability",
        caption="On clean sequences at the end; mean and range over seeds. ρ = 1 is the full model.",
        y_range=(0.0, 1.0),
        references=[Reference("α", noisy.alpha_of(seen.runs[NONE]))],
    )


def _table(seen: Seen) -> Table:
    return Table(
        title="The end of training, by what is dropped or cut",
        caption="Means over seeds on clean sequences. ρ is the fraction of the rank kept: of F₂'s input matrix where "
        "F₂ is a perceptron, and of W_O¹ where there are no feed-forward layers.",
        columns=("F₁", "F₂", "weights", *seen.ends[NONE].row(noisy.FULL)),
        rows=tuple(
            (*choice, _label(edit), *(float(values.mean()) for values in ends.row(edit).values()))
            for choice, ends in seen.ends.items()
            for edit in ends.right
        ),
    )


STUDY = noisy.noisy_study(
    "truncation/feedforward-choices",
    __doc__,
    measures_in(__name__),
    trains=experiments,
    reads=Seen,
    draws=(lambda seen: [_panel(seen, *one) for one in product(CHOICES, _PANELS)], _against_rho, _table),
)
