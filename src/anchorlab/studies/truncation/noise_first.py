"""Noisy in-context recall: noise is learned within a few steps and recall much later, afresh or by fine-tuning.

Source: truncated weights, section 4 and Figure 4; settings in its appendix A.5.
"""

from collections.abc import Sequence

from torch import Tensor

from anchorlab.findings import Claim, Findings, LineFigure, Provenance, Reference, Table, line
from anchorlab.studies.ideal import ideal_scores
from anchorlab.studies.kit import along, judge_means
from anchorlab.studies.study import Study
from anchorlab.studies.truncation.noisy_recall import ALPHA, FIRST, noise_peak, noisy_and_tuned, profiles, recall_delay
from anchorlab.training import TrainedRun

CLAIMS = (
    Claim(
        "truncation/noise-first/pretraining-peak",
        "Trained on noise from the start, the model first predicts the noise almost surely",
        "truncated weights, Fig 4 left",
        "close to 1 in the first 5 or so steps",
        f"highest probability of the noise token after 1 to {FIRST} steps, on noisy sequences, mean over seeds",
        (0.8, None),
    ),
    Claim(
        "truncation/noise-first/pretraining-settles",
        "It then predicts the noise with probability nearly alpha",
        "truncated weights, Fig 4 left",
        "nearly 0.5",
        "probability of the noise token at the end, on noisy sequences, mean over seeds",
        (ALPHA - 0.1, ALPHA + 0.1),
    ),
    Claim(
        "truncation/noise-first/pretraining-recall-later",
        "The recall is learned only later",
        "truncated weights, section 4",
        "slower, after the noise",
        "step at which the right token reaches half of 1 - alpha over that at which the noise reaches alpha, on clean "
        "sequences, lowest over seeds",
        (10.0, None),
    ),
    Claim(
        "truncation/noise-first/tuning-peak",
        "Pretrained without noise and fine-tuned with it, the model first predicts the noise almost surely too",
        "truncated weights, Fig 4 right",
        "close to 1 in the first 5 or so steps",
        f"highest probability of the noise token after 1 to {FIRST} steps of fine-tuning, on noisy sequences, mean "
        "over seeds",
        (0.8, None),
    ),
    Claim(
        "truncation/noise-first/tuning-settles",
        "It then predicts the noise with probability nearly alpha",
        "truncated weights, Fig 4 right",
        "nearly 0.5",
        "probability of the noise token at the end of fine-tuning, on noisy sequences, mean over seeds",
        (ALPHA - 0.1, ALPHA + 0.1),
    ),
    Claim(
        "truncation/noise-first/tuning-knew",
        "Before fine-tuning it recalls",
        "truncated weights, Fig 4 right",
        "pretrained on clean data",
        "probability of the right token on clean sequences before fine-tuning, mean over seeds",
        (0.9, None),
    ),
)


def analyse(runs: Sequence[TrainedRun], provenance: Provenance, note: str) -> Findings:
    """The two panels of Figure 4, and a table of the first steps and the end."""
    afresh, tuned = runs
    delay = recall_delay(afresh)
    measured: dict[str, Tensor | None] = {
        "pretraining-peak": noise_peak(afresh, "train"),
        "pretraining-settles": along(afresh, "train", "noise")[1][:, -1],
        "pretraining-recall-later": None if delay is None else delay.amin().reshape(1),
        "tuning-peak": noise_peak(tuned, "train"),
        "tuning-settles": along(tuned, "train", "noise")[1][:, -1],
        "tuning-knew": along(tuned, "clean", "right")[1][:, 0],
    }
    return Findings(
        study=STUDY.name,
        title=STUDY.title,
        summary="A trigger is followed by the sequence's own token, or, with probability 1/2, by noise. What does the "
        f"model predict there, step by step, trained on that from the start or after a training without noise? {note}",
        profile=provenance.profile,
        provenance=provenance,
        claims=judge_means(CLAIMS, measured, provenance.profile),
        figures=(
            _panel(afresh, "Trained on noise from the start (Fig 4, left)", "training"),
            _panel(tuned, "Trained without noise, then fine-tuned with it (Fig 4, right)", "fine-tuning"),
        ),
        tables=(_table(afresh, tuned),),
    )


def _panel(run: TrainedRun, title: str, time: str) -> LineFigure:
    ideal = ideal_scores(run.experiment.task, "train")
    steps, noise = along(run, "train", "noise")
    _, right = along(run, "train", "right")
    at = [step + 1 for step in steps]
    return LineFigure(
        title=title,
        caption="Probability of the noise token and of the sequence's own token, on noisy sequences (α = 0.5); where "
        "that token is the noise itself, it counts as both. Mean and range over seeds. Dashed: the ideal predictor, "
        "which knows the law. The step axis starts at 1 for the model before the first step.",
        x_label=f"step of {time} + 1",
        y_label="probability",
        lines=(line("noise", at, noise), line("right token", at, right)),
        log_x=True,
        y_range=(0.0, 1.0),
        references=(
            Reference("noise, ideal", ideal["noise"]),
            Reference("right token, ideal", ideal["right"]),
        ),
    )


def _table(afresh: TrainedRun, tuned: TrainedRun) -> Table:
    rows: list[tuple[str | float, ...]] = []
    for name, run in (("from the start", afresh), ("fine-tuned", tuned)):
        _, noise = along(run, "train", "noise")
        _, right = along(run, "train", "right")
        rows.append(
            (
                name,
                float(noise[:, 0].mean()),
                float(right[:, 0].mean()),
                float(noise_peak(run, "train").mean()),
                float(noise[:, -1].mean()),
                float(right[:, -1].mean()),
            )
        )
    return Table(
        title="Before, in the first steps, and at the end",
        caption=f"Means over seeds on noisy sequences; the peak is the highest value after 1 to {FIRST} steps.",
        columns=("trained", "noise before", "right before", "noise at its peak", "noise, end", "right, end"),
        rows=tuple(rows),
    )


STUDY = Study(
    name="truncation/noise-first",
    title="Noisy recall: the noise is learned first, the recall later",
    claims=CLAIMS,
    profiles=profiles(noisy_and_tuned, tuned=True),
    analyse=analyse,
)
