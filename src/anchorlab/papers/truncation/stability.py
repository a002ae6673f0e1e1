"""Noisy recall: learning rates and noise levels.

The noise is learned first and stored by the second feed-forward layer. Does that hold for every learning rate from
0.001 to 0.03, and for other probabilities α of noise than 1/2?

Source: truncated weights, section 4 ("any other constant value would lead to similar observations") and appendix A.5
("stable for any learning rate between 0.001 and 0.03").
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple, cast

import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.findings import LineFigure, Table, at_least
from anchorlab.papers.anchor.settings import repeated
from anchorlab.papers.truncation.noisy_recall import (
    ALPHA,
    FULL,
    WITHOUT_F2,
    Setting,
    lasting,
    noise_peak,
    noisy_study,
)
from anchorlab.studies import Measurement, Reading, claim, fresh, measures_in, over, reading
from anchorlab.studies.kit import ACCURACY, at_end, column_table, curves_against
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

FIRST_STEPS, WHOLE = "first steps", "whole"
"""Labels of the two trainings at the other learning rates for equally many steps: with all seeds, and with few."""


def longer(rate: float) -> str:
    """Return the label of the training whose steps are in inverse proportion to its learning rate."""
    return f"learning rate {rate:g}, longer"


RATE_SEEDS = 3
"""The number of seeds that are trained to the end at each other learning rate, and of the longer trainings."""

ALPHA_SEEDS = 5
"""The number of seeds at each other noise level."""


def experiments(setting: Setting) -> dict[str | float, Experiment]:
    """Return the experiment of the other studies, those at other learning rates, and one for each other alpha.

    The other learning rates train for the first steps with all seeds, and with few seeds for as many steps as the usual
    rate. All rates, the usual one too, also train with few seeds for steps in inverse proportion to the rate.
    """
    slower = setting.experiment("noisy recall, learning rates")
    evaluation = slower.recipe.evaluation.replace(at=(*slower.recipe.evaluation.at, *BETWEEN))
    recipe = slower.recipe.replace(evaluation=evaluation)

    def at_rates(seeds: int) -> Members:
        return Members(seeds=fresh(seeds) * len(RATES), learning_rate=repeated(RATES, seeds))

    def scaled(rate: float) -> Experiment:
        steps = round(recipe.duration * recipe.optimiser.learning_rate / rate)
        every = max(1, cast(int, recipe.evaluation.every) * steps // recipe.duration)
        longer_recipe = lasting(recipe, steps).replace(
            batch=setting.long_batch,
            optimiser=recipe.optimiser.replace(learning_rate=rate),
            evaluation=recipe.evaluation.replace(every=every),
            checkpoints=recipe.checkpoints.replace(every=every),
        )
        members = Members(seeds=fresh(min(RATE_SEEDS, setting.seeds)))
        return replace(slower, label=f"noisy recall, {longer(rate)}", recipe=longer_recipe, members=members)

    noises = {alpha: setting.experiment(f"noisy recall, alpha = {alpha:g}", alpha=alpha) for alpha in ALPHAS}
    seeds = min(ALPHA_SEEDS, setting.seeds)
    return {
        "usual": setting.experiment(),
        FIRST_STEPS: replace(
            slower,
            label=f"{slower.label}, first steps",
            recipe=recipe.replace(duration=min(FIRST, recipe.duration // 2)),
            members=at_rates(setting.seeds),
        ),
        WHOLE: replace(slower, recipe=recipe, members=at_rates(min(RATE_SEEDS, setting.seeds))),
        **{longer(rate): scaled(rate) for rate in (*RATES, recipe.optimiser.learning_rate)},
        **{alpha: replace(one, members=Members(seeds=fresh(seeds))) for alpha, one in noises.items()},
    }


class Outcome(NamedTuple):
    """Results under one choice, by seed."""

    early: Float[Tensor, "seed"]  # highest share of positions with noise predicted in the first steps, noisy sequences
    noise: Float[Tensor, "seed"]  # probability of the noise on clean sequences at the end, full model
    right: Float[Tensor, "seed"]  # probability of the right token on clean sequences at the end, without F_2
    gain: Float[Tensor, "seed"]  # by how much dropping F_2 makes the right token more probable


def _outcomes(run: TrainedRun, choices: int = 1) -> list[Outcome]:
    """Return the outcome of each choice; members are all seeds of the first choice, then of the next."""
    noise, right = at_end(run, "clean", "noise", FULL), at_end(run, "clean", "right", WITHOUT_F2)
    gain = right - at_end(run, "clean", "right", FULL)
    values = torch.stack([noise_peak(run, "train", FIRST), noise, right, gain])  # [field member]
    return [Outcome(*fields) for fields in values.view(len(values), choices, -1).unbind(dim=1)]


class Seen(Reading):
    """Outcomes by learning rate, at alpha = 1/2, and by alpha, at the greatest learning rate."""

    @reading
    def usual(self) -> Outcome:
        """The outcome of the other studies' setting."""
        return _outcomes(self.runs["usual"])[0]

    @reading
    def rates(self) -> Mapping[float, Outcome]:
        """Outcomes by learning rate; the first steps have more seeds than the end."""
        early = noise_peak(self.runs[FIRST_STEPS], "train", FIRST).view(len(RATES), -1)
        whole = _outcomes(self.runs[WHOLE], len(RATES))
        slower = {rate: one._replace(early=first) for rate, one, first in zip(RATES, whole, early, strict=True)}
        return slower | {self.greatest: self.usual}

    @property
    def greatest(self) -> float:
        """The learning rate of the other studies."""
        return self.runs["usual"].experiment.recipe.optimiser.learning_rate

    @reading
    def scaled(self) -> Mapping[float, Outcome]:
        """Outcomes by learning rate, each after a number of steps in inverse proportion to the rate."""
        return {rate: _outcomes(self.runs[longer(rate)])[0] for rate in (*RATES, self.greatest)}

    @reading
    def alphas(self) -> Mapping[float, Outcome]:
        """Outcomes by alpha."""
        found = {alpha: _outcomes(self.runs[alpha])[0] for alpha in ALPHAS} | {ALPHA: self.usual}
        return dict(sorted(found.items()))


def _lowest(values: Mapping[float, Float[Tensor, "seed"]]) -> Measurement:
    """Return the lowest value over choices for each seed that all choices share, mean over seeds."""
    shared = min(map(len, values.values()))
    lowest = torch.stack([one[:shared] for one in values.values()]).amin(dim=0)
    return over(lowest, detail=", ".join(f"{float(one.mean()):.3g} at {key:g}" for key, one in values.items()))


@claim("appendix A.5", "stable from 0.001 to 0.03", at_least(0.8))
def rates_noise_first(seen: Seen) -> Measurement:
    """At every learning rate the noise is learned first.

    Highest share of positions at which noise is the most probable token after 1 to {FIRST} steps, on noisy sequences;
    lowest over learning rates, mean over seeds.
    """
    return _lowest({rate: one.early for rate, one in seen.rates.items()})


@claim("appendix A.5", "stable from 0.001 to 0.03", at_least(0.95))
def rates_dropped(seen: Seen) -> Measurement:
    """At every learning rate the right token is predicted almost surely without F_2, after equally many steps.

    Probability of the right token without F_2, on clean sequences at the end; lowest over learning rates, mean over
    seeds.
    """
    return _lowest({rate: one.right for rate, one in seen.rates.items()})


@claim("appendix A.5", "stable from 0.001 to 0.03", at_least(0.5))
def rates_gain(seen: Seen) -> Measurement:
    """At every learning rate dropping F_2 makes the right token more probable, after steps in inverse proportion.

    Probability of the right token without F_2 minus that of the full model, on clean sequences at the end, divided by
    alpha, the most that can be gained; lowest over learning rates, mean over seeds.
    """
    return _lowest({rate: one.gain / ALPHA for rate, one in seen.scaled.items()})


@claim("section 4", "similar observations for any other constant alpha", at_least(0.5))
def alphas_gain(seen: Seen) -> Measurement:
    """At other noise levels, too, dropping F_2 makes the right token more probable.

    Probability of the right token without F_2 minus that of the full model, on clean sequences at the end, divided by
    alpha, the most that can be gained; lowest over alphas, mean over seeds.
    """
    return _lowest({alpha: one.gain / alpha for alpha, one in seen.alphas.items()})


def _figure(title: str, label: str, found: Mapping[float, Outcome], log_x: bool = False) -> LineFigure:
    names = (f"predicts the noise, at most in {FIRST} steps", "noise, full model", "right token without F₂")
    values = torch.tensor([[float(row.mean()) for row in one[: len(names)]] for one in found.values()])  # [point name]
    return curves_against(
        title,
        list(found),
        dict(zip(names, values.T.unsqueeze(1), strict=True)),
        x_label=label,
        y_label="fraction, probability",
        caption="The highest fraction of predicting the noise in the first steps, on noisy sequences; probabilities on "
        "clean sequences at the end of training. Means over seeds.",
        log_x=log_x,
        y_range=ACCURACY,
    )


def _table(seen: Seen) -> Table:
    settings = [(f"learning rate {rate:g}", one) for rate, one in seen.rates.items()]
    settings += [(f"learning rate {rate:g}, steps in inverse proportion", one) for rate, one in seen.scaled.items()]
    settings += [(f"α = {alpha:g}", one) for alpha, one in seen.alphas.items()]
    columns = ("predicts noise early", "noise, full model", "right without F₂", "gain")
    numbers = zip(*([float(row.mean()) for row in one] for _, one in settings), strict=True)
    last = seen.runs[longer(seen.greatest)].experiment
    return column_table(
        "Every setting",
        f"Means over seeds. Fraction: the highest in the first {FIRST} steps. Gain: of the right token, without F₂. "
        f"Steps in inverse proportion: {len(last.members)} seeds in batches of {last.recipe.batch}.",
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
        lambda seen: _figure(
            "What is predicted after steps in inverse proportion to the learning rate (α = 0.5)",
            "learning rate",
            seen.scaled,
            log_x=True,
        ),
        lambda seen: _figure("What is predicted, by noise level", "α", seen.alphas),
        _table,
    ),
)
