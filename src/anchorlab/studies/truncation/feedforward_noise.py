"""Noisy in-context recall: the second feed-forward layer stores the noise, and dropping it leaves the right token.

Source: truncated weights, section 4 and Figure 3; settings in its appendix A.5.
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
    FIRST,
    FRACTIONS,
    FULL,
    WITHOUT_F2,
    noise_peak,
    noisy_recall,
    profiles,
    recall_delay,
)
from anchorlab.training import Experiment, TrainedRun

_CURVES = {FULL: 1.0, **{f"rho={rho:g}": rho for rho in FRACTIONS}, WITHOUT_F2: 0.0}
"""The edits and their fractions rho: of a layer whose input matrix is zero nothing is left."""

CLAIMS = (
    Claim(
        "truncation/feedforward-noise/full-noise",
        "The full model predicts the noise with probability about alpha",
        "truncated weights, section 4 and Fig 3",
        "about 0.5",
        "mean probability of the noise token on clean sequences at the end, full model",
        (ALPHA - 0.1, ALPHA + 0.1),
    ),
    Claim(
        "truncation/feedforward-noise/dropped-right",
        "Without its second feed-forward layer it predicts the right token almost surely",
        "truncated weights, Fig 3",
        "about 0.98",
        "mean probability of the right token on clean sequences at the end, rho = 0",
        (0.95, 1.0),
    ),
    Claim(
        "truncation/feedforward-noise/dropped-noise",
        "Without it hardly any noise is predicted",
        "truncated weights, Fig 3",
        "about 0",
        "mean probability of the noise token on clean sequences at the end, rho = 0",
        (None, 0.05),
    ),
    Claim(
        "truncation/feedforward-noise/clean-loss-falls",
        "The loss on clean sequences falls as less of the rank is kept",
        "truncated weights, Fig 3",
        "lower for smaller rho, lowest at rho = 0",
        "clean loss of the full model minus that at rho = 0, at the end, mean over seeds",
        (0.4, None),
    ),
    Claim(
        "truncation/feedforward-noise/loss-order",
        "Every step down in rho lowers the clean loss or leaves it",
        "truncated weights, Fig 3",
        "ordered by rho",
        "largest rise of the mean clean loss from one rho to the next smaller one (rho = 1, 0.5, 0.25, 0.1, 0.05, 0); "
        "judged only where the loss falls at all, by 0.4",
        (None, 0.02),
    ),
    Claim(
        "truncation/feedforward-noise/noise-first",
        "The noise is learned within a few steps",
        "truncated weights, section 4 and Fig 4",
        "noise near probability 1 within about 5 to 10 steps",
        f"highest probability of the noise token after 1 to {FIRST} steps, on clean sequences, full model, mean over "
        "seeds",
        (0.8, None),
    ),
    Claim(
        "truncation/feedforward-noise/recall-later",
        "The recall is learned much later than the noise",
        "truncated weights, section 4",
        "slower, after the noise",
        "step at which the right token reaches half of 1 - alpha over that at which the noise reaches alpha, on clean "
        "sequences, lowest over seeds",
        (10.0, None),
    ),
)


def _experiments(profile: str) -> list[Experiment]:
    return [noisy_recall(profile, "noisy recall")]


def _end(run: TrainedRun, metric: str, edit: str) -> Tensor:
    return at_end(run, "clean", metric, edit)


def _label(edit: str) -> str:
    return "full model (ρ = 1)" if edit == FULL else f"ρ = {_CURVES[edit]:g}"


def analyse(runs: Sequence[TrainedRun], provenance: Provenance, note: str) -> Findings:
    """The three panels of Figure 3, the final loss against rho, and a table of the end."""
    (run,) = runs
    losses = torch.stack([_end(run, "loss", edit) for edit in _CURVES])
    gain = losses[0] - losses[-1]
    ideal = ideal_scores(run.experiment.task, "clean")
    measured: dict[str, Tensor | None] = {
        "full-noise": _end(run, "noise", FULL),
        "dropped-right": _end(run, "right", WITHOUT_F2),
        "dropped-noise": _end(run, "noise", WITHOUT_F2),
        "clean-loss-falls": gain,
        "loss-order": losses.mean(dim=1).diff().amax().reshape(1) if float(gain.mean()) >= 0.4 else None,
        "noise-first": noise_peak(run, "clean"),
        "recall-later": None if (delay := recall_delay(run)) is None else delay.amin().reshape(1),
    }
    return Findings(
        study=STUDY.name,
        title=STUDY.title,
        summary="A trigger is followed by the sequence's own token, or, with probability 1/2, by noise. "
        f"The second feed-forward layer's input matrix is cut to a fraction ρ of its rank, beside training. {note}",
        profile=provenance.profile,
        provenance=provenance,
        claims=judge_means(CLAIMS, measured, provenance.profile),
        figures=(
            _panel(
                run,
                "right",
                "Probability of the right token (Fig 3, left)",
                (Reference("paper, ρ = 0", 0.98), Reference("full model, ideal", ideal["right"])),
            ),
            _panel(
                run,
                "noise",
                "Probability of the noise token (Fig 3, middle)",
                (Reference("full model, ideal", ideal["noise"]),),
            ),
            _panel(
                run, "loss", "Loss on clean sequences (Fig 3, right)", (Reference("full model, ideal", ideal["loss"]),)
            ),
            _against_rho(losses),
        ),
        tables=(_table(run),),
    )


def _panel(run: TrainedRun, metric: str, title: str, references: tuple[Reference, ...]) -> LineFigure:
    lines: list[Line] = []
    for edit in _CURVES:
        steps, values = along(run, "clean", metric, edit)
        lines.append(line(_label(edit), [step + 1 for step in steps], values))
    return LineFigure(
        title=title,
        caption="On sequences without noise (α = 0), along training with α = 0.5, for the full model and with ρ of the "
        "rank of F₂'s input matrix kept. Mean and range over seeds. The step axis starts at 1 for the model as drawn.",
        x_label="step + 1",
        y_label="cross-entropy (nats)" if metric == "loss" else "probability",
        lines=tuple(lines),
        log_x=True,
        log_y=metric == "loss",
        y_range=(None, None) if metric == "loss" else (0.0, 1.0),
        references=references,
    )


def _against_rho(losses: Tensor) -> LineFigure:
    order = list(_CURVES.values())[::-1]
    return LineFigure(
        title="Clean loss at the end, against the rank kept",
        caption="Mean and range over seeds; ρ = 0 drops the second feed-forward layer, ρ = 1 is the full model.",
        x_label="ρ, fraction of the rank kept",
        y_label="cross-entropy (nats)",
        lines=(line("clean loss", order, losses.flip(0).T),),
        y_range=(0.0, None),
    )


def _table(run: TrainedRun) -> Table:
    rows: list[tuple[str | float, ...]] = [
        (_label(edit), *(float(_end(run, metric, edit).mean()) for metric in ("right", "noise", "loss", "accuracy")))
        for edit in _CURVES
    ]
    return Table(
        title="The end of training, by rank kept",
        caption="Means over seeds on clean sequences.",
        columns=("kept", "right token", "noise token", "clean loss", "accuracy"),
        rows=tuple(rows),
    )


STUDY = Study(
    name="truncation/feedforward-noise",
    title="Noisy recall: the second feed-forward layer stores the noise",
    claims=CLAIMS,
    profiles=profiles(_experiments),
    analyse=analyse,
)
