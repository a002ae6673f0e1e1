"""Noisy recall: learning rates and noise levels.

The noise is learned first and stored by the second feed-forward layer. Does that hold for every learning rate from
0.001 to 0.03, and for other probabilities α of noise than 1/2?

Source: truncated weights, section 4 ("any other constant value would lead to similar observations") and appendix A.5
("stable for any learning rate between 0.001 and 0.03").
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import torch

from anchorlab.findings import LineFigure, Table, at_least
from anchorlab.papers.truncation.noisy_recall import ALPHA, FULL, WITHOUT_F2, Setting, noise_peak, noisy_study
from anchorlab.studies import Measurement, Reading, claim, fresh, measures_in, reading
from anchorlab.studies.kit import ACCURACY, at_end, column_table, curves_against
from anchorlab.studies.readings import Quantity
from anchorlab.training import Experiment, Members, TrainedRun

RATES = (0.001, 0.003, 0.01)
"""Learning rates of the range of appendix A.5; the other studies take its upper end."""

ALPHAS = (0.2, 0.8)
"""Probabilities of noise; the other studies take 1/2."""

FIRST = 300
"""The first steps, in which the noise is to be learned at every learning rate: 10 for the greatest, 300 for one thirty
times as small."""

BETWEEN = (50, 75, 100, 150, 200, 250)
"""When small learning rates are evaluated, in addition to the times of the other studies."""


def experiments(setting: Setting) -> dict[str | float, Experiment]:
    """Return the experiment of the other studies, one with other learning rates, and one for each other alpha."""
    slower = setting.experiment("noisy recall, learning rates")
    evaluation = slower.recipe.evaluation.replace(at=(*slower.recipe.evaluation.at, *BETWEEN))
    noises = {alpha: setting.experiment(f"noisy recall, alpha = {alpha:g}", alpha=alpha) for alpha in ALPHAS}
    return {
        "usual": setting.experiment(),
        "rates": replace(
            slower,
            recipe=slower.recipe.replace(evaluation=evaluation),
            members=Members(seeds=fresh(1) * len(RATES), learning_rate=RATES),
        ),
        **{alpha: replace(one, members=Members(seeds=fresh(1))) for alpha, one in noises.items()},
    }


class Outcome(NamedTuple):
    """Results under one choice, mean over seeds."""

    early: float  # highest share of positions at which noise is predicted in the first steps, on noisy sequences
    noise: float  # probability of the noise on clean sequences at the end, full model
    right: float  # probability of the right token on clean sequences at the end, without F_2
    gain: float  # by how much dropping F_2 makes the right token more probable


def _outcomes(run: TrainedRun) -> list[Outcome]:
    early = noise_peak(run, "train", FIRST)
    noise, right = at_end(run, "clean", "noise", FULL), at_end(run, "clean", "right", WITHOUT_F2)
    gain = right - at_end(run, "clean", "right", FULL)
    return [Outcome(*row) for row in torch.stack([early, noise, right, gain], dim=1).tolist()]


class Seen(Reading):
    """Outcomes by learning rate, at alpha = 1/2, and by alpha, at the greatest learning rate."""

    outcomes = Quantity(_outcomes)

    @reading
    def usual(self) -> Outcome:
        """The outcome of the other studies' setting, mean over its seeds."""
        members = self.outcomes["usual"]
        return Outcome(*(sum(values) / len(members) for values in zip(*members, strict=True)))

    @reading
    def rates(self) -> Mapping[float, Outcome]:
        """Outcomes by learning rate."""
        greatest = self.runs["usual"].experiment.recipe.optimiser.learning_rate
        return dict(zip(RATES, self.outcomes["rates"], strict=True)) | {greatest: self.usual}

    @reading
    def alphas(self) -> Mapping[float, Outcome]:
        """Outcomes by alpha."""
        found = {alpha: self.outcomes[alpha][0] for alpha in ALPHAS} | {ALPHA: self.usual}
        return dict(sorted(found.items()))


def _lowest(values: Mapping[float, float]) -> Measurement:
    return Measurement(
        min(values.values()), detail=", ".join(f"{value:.3g} at {key:g}" for key, value in values.items())
    )


@claim("appendix A.5", "stable from 0.001 to 0.03", at_least(0.8))
def rates_noise_first(seen: Seen) -> Measurement:
    """At every learning rate the noise is learned first.

    Highest share of positions at which noise is the most probable token after 1 to {FIRST} steps, on noisy sequences;
    lowest over learning rates.
    """
    return _lowest({rate: one.early for rate, one in seen.rates.items()})


@claim("appendix A.5", "stable from 0.001 to 0.03", at_least(0.95))
def rates_dropped(seen: Seen) -> Measurement:
    """At every learning rate the right token is predicted almost surely without F_2.

    Probability of the right token without F_2, on clean sequences at the end; lowest over learning rates.
    """
    return _lowest({rate: one.right for rate, one in seen.rates.items()})


@claim("section 4", "similar observations for any other constant alpha", at_least(0.5))
def alphas_gain(seen: Seen) -> Measurement:
    """At other noise levels, too, dropping F_2 makes the right token more probable.

    Probability of the right token without F_2 minus that of the full model, on clean sequences at the end, divided by
    alpha, the most that can be gained; lowest over alphas.
    """
    return _lowest({alpha: one.gain / alpha for alpha, one in seen.alphas.items()})


def _figure(title: str, label: str, found: Mapping[float, Outcome], log_x: bool = False) -> LineFigure:
    names = (f"predicts the noise, at most in {FIRST} steps", "noise, full model", "right token without F₂")
    values = torch.tensor([one[: len(names)] for one in found.values()])  # [point name]
    return curves_against(
        title,
        list(found),
        dict(zip(names, values.T.unsqueeze(1), strict=True)),
        x_label=label,
        y_label="fraction, probability",
        caption="The highest fraction of predicting the noise in the first steps, on noisy sequences; probabilities on "
        "clean sequences at the end of training. One seed; at the setting of the other studies, the mean over its "
        "seeds.",
        log_x=log_x,
        y_range=ACCURACY,
    )


def _table(seen: Seen) -> Table:
    settings = [(f"learning rate {rate:g}", one) for rate, one in seen.rates.items()]
    settings += [(f"α = {alpha:g}", one) for alpha, one in seen.alphas.items()]
    columns = ("predicts noise early", "noise, full model", "right without F₂", "gain")
    numbers = zip(*(one for _, one in settings), strict=True)
    return column_table(
        "Every setting",
        f"Fraction: the highest in the first {FIRST} steps. Gain: of the right token, by dropping F₂.",
        {"setting": [name for name, _ in settings], **dict(zip(columns, numbers, strict=True))},
    )


STUDY = noisy_study(
    "truncation/stability",
    __doc__,
    measures_in(__name__),
    trains=experiments,
    reads=Seen,
    draws=(
        lambda seen: _figure("What is predicted, by learning rate (α = 0.5)", "learning rate", seen.rates, log_x=True),
        lambda seen: _figure("What is predicted, by noise level", "α", seen.alphas),
        _table,
    ),
    seeds=3,
)
