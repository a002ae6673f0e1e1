"""Noisy in-context recall: which layer holds the noise, for each choice of the two feed-forward layers.

Source: truncated weights, appendix A.4 and Figures 9 to 12.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from anchorlab.findings import Claim, Findings, Line, LineFigure, Provenance, Reference, Table, line
from anchorlab.studies.ideal import ideal_scores
from anchorlab.studies.kit import along, judge_means, at_end
from anchorlab.studies.study import Study
from anchorlab.studies.truncation.noisy_recall import (
    ALPHA,
    FULL,
    OUTPUT_FRACTIONS,
    WITHOUT_F1,
    WITHOUT_F2,
    FeedForwards,
    noisy_recall,
    profiles,
)
from anchorlab.training import Experiment, TrainedRun

CHOICES: tuple[FeedForwards, ...] = (("mlp", "mlp"), ("mlp", "linear"), ("linear", "mlp"), ("none", "none"))
"""F_1 and F_2 of Figures 9, 10, 11 and 12."""

_TITLES = {
    ("mlp", "mlp"): "F₁ and F₂ perceptrons (Fig 9)",
    ("mlp", "linear"): "F₁ a perceptron, F₂ linear (Fig 10)",
    ("linear", "mlp"): "F₁ linear, F₂ a perceptron (Fig 11)",
    ("none", "none"): "No feed-forward layers, W_O¹ cut (Fig 12)",
}
_BEST, _LOWEST = "rho=0.05", "rho=0.01"

CLAIMS = (
    Claim(
        "truncation/feedforward-choices/mlp-mlp-without-f2",
        "Two perceptrons: without F_2 the right token is predicted almost surely",
        "truncated weights, Fig 9",
        "near 1",
        "probability of the right token without F_2, on clean sequences at the end, mean over seeds",
        (0.95, 1.0),
    ),
    Claim(
        "truncation/feedforward-choices/mlp-mlp-without-f1",
        "Two perceptrons: without F_1 the noise is predicted with high probability",
        "truncated weights, Fig 9",
        "high",
        "probability of the noise token without F_1, on clean sequences at the end, mean over seeds",
        (0.6, None),
    ),
    Claim(
        "truncation/feedforward-choices/mlp-linear-without-f2",
        "Perceptron, then linear: without F_2 the right token is more probable",
        "truncated weights, Fig 10",
        "helps",
        "probability of the right token without F_2 minus that of the full model, at the end, mean over seeds",
        (0.1, None),
    ),
    Claim(
        "truncation/feedforward-choices/mlp-linear-without-f1",
        "Perceptron, then linear: without F_1 the right token is more probable too",
        "truncated weights, Fig 10",
        "helps",
        "probability of the right token without F_1 minus that of the full model, at the end, mean over seeds",
        (0.1, None),
    ),
    Claim(
        "truncation/feedforward-choices/mlp-linear-f1-is-better",
        "Perceptron, then linear: dropping F_1 gives the lower loss of the two",
        "truncated weights, Fig 10",
        "lower loss",
        "clean loss without F_2 minus that without F_1, at the end, mean over seeds",
        (0.0, None),
    ),
    Claim(
        "truncation/feedforward-choices/linear-mlp-without-f2",
        "Linear, then perceptron: without F_2 the right token is more probable",
        "truncated weights, Fig 11",
        "helps",
        "probability of the right token without F_2 minus that of the full model, at the end, mean over seeds",
        (0.1, None),
    ),
    Claim(
        "truncation/feedforward-choices/linear-mlp-without-f1",
        "Linear, then perceptron: without F_1 the noise is more probable",
        "truncated weights, Fig 11",
        "predicts the noise more",
        "probability of the noise token without F_1 minus that of the full model, at the end, mean over seeds",
        (0.02, None),
    ),
    Claim(
        "truncation/feedforward-choices/none-best",
        "No feed-forward layers: cutting W_O of the first layer to rho = 0.05 helps a little",
        "truncated weights, Fig 12",
        "a little",
        "probability of the right token at rho = 0.05 minus that of the full model, at the end, mean over seeds",
        (0.01, 0.3),
    ),
    Claim(
        "truncation/feedforward-choices/none-less",
        "It helps less than dropping a feed-forward layer does where there are some",
        "truncated weights, appendix A.4",
        "clearly smaller",
        "gain of dropping a feed-forward layer, the better of the two, in the choice of layers where that is smallest, "
        "minus the gain at rho = 0.05 without any, each the mean over seeds",
        (0.1, None),
    ),
    Claim(
        "truncation/feedforward-choices/none-destroyed",
        "No feed-forward layers: rho = 0.01 destroys the model's predictions",
        "truncated weights, Fig 12",
        "destroyed",
        "probability of the right token at rho = 0.01 over that of the full model, at the end, mean over seeds",
        (None, 0.5),
    ),
)


def _experiments(profile: str) -> list[Experiment]:
    labels = {choice: f"noisy recall, {choice[0]} and {choice[1]}" for choice in CHOICES[1:]}
    return [noisy_recall(profile, labels.get(choice, "noisy recall"), feed_forward=choice) for choice in CHOICES]


def _gain(run: TrainedRun, edit: str, metric: str = "right") -> Tensor:
    return at_end(run, "clean", metric, edit) - at_end(run, "clean", metric)


def _least_gain(runs: Sequence[TrainedRun]) -> Tensor:
    """The mean gain of dropping the better layer, in the run where that is smallest."""
    best = [torch.stack([_gain(run, edit).mean() for edit in (WITHOUT_F1, WITHOUT_F2)]).amax() for run in runs]
    return torch.stack(best).amin()


def measure(runs: Sequence[TrainedRun]) -> dict[str, Tensor]:
    """What each claim asks for, by the last part of its name, from the runs in the order of `CHOICES`."""
    both, then_linear, then_mlp, neither = runs
    return {
        "mlp-mlp-without-f2": at_end(both, "clean", "right", WITHOUT_F2),
        "mlp-mlp-without-f1": at_end(both, "clean", "noise", WITHOUT_F1),
        "mlp-linear-without-f2": _gain(then_linear, WITHOUT_F2),
        "mlp-linear-without-f1": _gain(then_linear, WITHOUT_F1),
        "mlp-linear-f1-is-better": at_end(then_linear, "clean", "loss", WITHOUT_F2)
        - at_end(then_linear, "clean", "loss", WITHOUT_F1),
        "linear-mlp-without-f2": _gain(then_mlp, WITHOUT_F2),
        "linear-mlp-without-f1": _gain(then_mlp, WITHOUT_F1, "noise"),
        "none-best": _gain(neither, _BEST),
        "none-less": (_least_gain(runs[:3]) - _gain(neither, _BEST).mean()).reshape(1),
        "none-destroyed": at_end(neither, "clean", "right", _LOWEST) / at_end(neither, "clean", "right"),
    }


def analyse(runs: Sequence[TrainedRun], provenance: Provenance, note: str) -> Findings:
    """A panel for each choice, the truncations of W_O, and a table of the end."""
    return Findings(
        study=STUDY.name,
        title=STUDY.title,
        summary="Each of the two feed-forward layers is a perceptron, one matrix, or missing. Which of them, dropped "
        f"after training, takes the noise with it? {note}",
        profile=provenance.profile,
        provenance=provenance,
        claims=judge_means(CLAIMS, measure(runs), provenance.profile),
        figures=(
            *(_panel(run, choice) for run, choice in zip(runs, CHOICES, strict=True)),
            _against_rho(runs[-1]),
        ),
        tables=(_table(runs),),
    )


def _panel(run: TrainedRun, choice: FeedForwards) -> LineFigure:
    lines: list[Line] = []
    for edit in (FULL, *(edit for edit in run.experiment.recipe.evaluation.edits if _is_drawn(edit, choice))):
        steps, right = along(run, "clean", "right", edit)
        lines.append(line(_label(edit), [step + 1 for step in steps], right))
    return LineFigure(
        title=f"{_TITLES[choice]}: the right token",
        caption="Probability of the right token on clean sequences, along training with α = 0.5; mean and range over "
        "seeds. The step axis starts at 1 for the model before the first step.",
        x_label="step + 1",
        y_label="probability",
        lines=tuple(lines),
        log_x=True,
        y_range=(0.0, 1.0),
        references=(Reference("full model, ideal", ideal_scores(run.experiment.task, "clean")["right"]),),
    )


def _is_drawn(edit: str, choice: FeedForwards) -> bool:
    return edit in (WITHOUT_F1, WITHOUT_F2) or (choice == ("none", "none") and edit in (_BEST, _LOWEST, "rho=0"))


def _label(edit: str) -> str:
    named = {FULL: "full model", WITHOUT_F1: "without F₁", WITHOUT_F2: "without F₂"}
    return named.get(edit, f"ρ = {edit.removeprefix('rho=')}")


def _against_rho(run: TrainedRun) -> LineFigure:
    order = [*reversed(OUTPUT_FRACTIONS), 1.0]
    edits = [*(f"rho={rho:g}" for rho in reversed(OUTPUT_FRACTIONS)), FULL]

    def values(metric: str) -> Tensor:
        return torch.stack([at_end(run, "clean", metric, edit) for edit in edits], dim=1)

    return LineFigure(
        title="No feed-forward layers: predictions against the rank of W_O¹ that is kept",
        caption="On clean sequences at the end; mean and range over seeds. ρ = 1 is the full model.",
        x_label="ρ, fraction of the rank kept",
        y_label="probability",
        lines=(line("right token", order, values("right")), line("noise token", order, values("noise"))),
        y_range=(0.0, 1.0),
        references=(Reference("α", ALPHA),),
    )


def _table(runs: Sequence[TrainedRun]) -> Table:
    rows: list[tuple[str | float, ...]] = []
    for run, (first, second) in zip(runs, CHOICES, strict=True):
        for edit in (FULL, *run.experiment.recipe.evaluation.edits):
            means = (float(at_end(run, "clean", name, edit).mean()) for name in ("right", "noise", "loss"))
            rows.append((first, second, _label(edit), *means))
    return Table(
        title="The end of training, by what is dropped or cut",
        caption="Means over seeds on clean sequences. ρ is of F₂'s input matrix where F₂ is a perceptron, and of W_O¹ "
        "where there are no feed-forward layers.",
        columns=("F₁", "F₂", "weights", "right token", "noise token", "clean loss"),
        rows=tuple(rows),
    )


STUDY = Study(
    name="truncation/feedforward-choices",
    title="Noisy recall: which layer holds the noise, by kinds of feed-forward layers",
    claims=CLAIMS,
    profiles=profiles(_experiments),
    analyse=analyse,
)
