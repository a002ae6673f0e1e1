"""Noisy in-context recall: the second layer attends to what followed a trigger, but not where that was noise.

Source: truncated weights, section 4, Figure 5 and appendix A.1.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorlab.findings import Claim, Findings, LineFigure, Map, MapFigure, Provenance, Table, grid, line
from anchorlab.lens import look
from anchorlab.studies.kit import judge_means
from anchorlab.studies.study import Study
from anchorlab.studies.truncation.noisy_recall import noisy_and_tuned, profiles
from anchorlab.tasks import Batch
from anchorlab.tasks.recall.noisy import NoisyRecall
from anchorlab.training import Ensemble, TrainedRun

_PATTERN = "blocks.1.attn.hook_pattern"
_SEQUENCES = 512
_MOST_COLUMNS = 16  # of the sequence that is drawn, so that each has its label
_SEED = 0  # of the sequences looked at

CLAIMS = (
    Claim(
        "truncation/avoided-noise/noisy-attends",
        "A model trained with noise attends to the right tokens that followed the trigger",
        "truncated weights, Fig 5 left",
        "attends only to them",
        "attention of the last position's trigger to [trigger] + y in all, trained with noise, mean over seeds",
        (0.5, None),
    ),
    Claim(
        "truncation/avoided-noise/noisy-avoids",
        "It does not attend to the noise that followed the trigger",
        "truncated weights, Fig 5 left",
        "only to the right tokens",
        "share of noise in the attention to all that followed the trigger, trained with noise, mean over seeds",
        (None, 0.1),
    ),
    Claim(
        "truncation/avoided-noise/clean-attends",
        "A model trained without noise attends to all that followed the trigger",
        "truncated weights, Fig 5 right, first step",
        "all tokens just after the triggers",
        "attention to [trigger] + y and [trigger] + noise in all, trained without noise, mean over seeds",
        (0.5, None),
    ),
    Claim(
        "truncation/avoided-noise/clean-attends-to-both",
        "It attends to noise there as to right tokens",
        "truncated weights, Fig 5 right, first step",
        "towards all",
        "attention to one noise that followed the trigger over that to one right token, trained without noise, mean "
        "over seeds",
        (1 / 3, 3.0),
    ),
    Claim(
        "truncation/avoided-noise/tuned-attends",
        "Fine-tuned with noise it attends to the right tokens that followed the trigger",
        "truncated weights, Fig 5 right",
        "only focused on the correct tokens",
        "attention to [trigger] + y in all, after fine-tuning, mean over seeds",
        (0.5, None),
    ),
    Claim(
        "truncation/avoided-noise/tuned-avoids",
        "Fine-tuned with noise it no longer attends to the noise that followed the trigger",
        "truncated weights, Fig 5 right",
        "only focused on the correct tokens",
        "share of noise in the attention to all that followed the trigger, after fine-tuning, mean over seeds",
        (None, 0.1),
    ),
)


@dataclass(frozen=True)
class Followers:
    """What followed the trigger in noisy sequences that have both noise and the right token there.

    Shapes
        tokens: `[batch position]`
        right, noise: `[batch position]`, 1 where [trigger] + y and where [trigger] + noise stands
    """

    tokens: Int[Tensor, "batch position"]
    right: Float[Tensor, "batch position"]
    noise: Float[Tensor, "batch position"]


@dataclass(frozen=True)
class Attention:
    """How much the last position attends to in all, per member: means over sequences.

    Shapes
        right, noise: `[member]`, attention to all [trigger] + y, and to all [trigger] + noise
        ratio: `[member]`, attention to one noise over that to one right token, from their means over all sequences
    """

    right: Float[Tensor, "member"]
    noise: Float[Tensor, "member"]
    ratio: Float[Tensor, "member"]

    @property
    def share(self) -> Float[Tensor, "member"]:
        """The share of noise in the attention to all that followed the trigger."""
        return self.noise / (self.right + self.noise)


def followers(task: NoisyRecall, batch: Batch) -> Followers:
    """Finds what followed the one trigger before the last position; sequences whose y is the noise are left out."""
    tokens, output = batch.inputs, batch.latents["output"][:, :1]
    after = torch.zeros_like(tokens, dtype=torch.bool)
    after[:, 1:] = tokens[:, :-1] == task.triggers[0]
    after[:, -1] = False  # the last trigger is set, not drawn
    right, noise = after & (tokens == output), after & (tokens == task.noise_token)
    kept = right.any(dim=1) & noise.any(dim=1) & (output[:, 0] != task.noise_token)
    return Followers(tokens[kept], right[kept].float(), noise[kept].float())


def attention(ensemble: Ensemble, seen: Followers) -> Attention:
    """Where the second layer's attention goes from the last position."""
    pattern = look(ensemble, seen.tokens, [_PATTERN])[_PATTERN][:, :, 0, -1]
    right, noise = (pattern * seen.right).sum(dim=2), (pattern * seen.noise).sum(dim=2)
    each_right, each_noise = right.sum(dim=1) / seen.right.sum(), noise.sum(dim=1) / seen.noise.sum()
    return Attention(right.mean(dim=1), noise.mean(dim=1), each_noise / each_right)


def analyse(runs: Sequence[TrainedRun], provenance: Provenance, note: str) -> Findings:
    """Attention of the second layer along training, in numbers and on one sequence."""
    noisy, tuned = runs
    task = noisy.experiment.task
    assert isinstance(task, NoisyRecall)
    seen = followers(task, task.sample("train", _SEQUENCES, _SEED))
    along = {
        name: {step: attention(run.ensemble(step), seen) for step in run.checkpoints}
        for name, run in (("noisy", noisy), ("tuned", tuned))
    }
    end = {name: steps[max(steps)] for name, steps in along.items()}
    clean = along["tuned"][0]
    measured: dict[str, Tensor | None] = {
        "noisy-attends": end["noisy"].right,
        "noisy-avoids": end["noisy"].share,
        "clean-attends": clean.right + clean.noise,
        "clean-attends-to-both": clean.ratio,
        "tuned-attends": end["tuned"].right,
        "tuned-avoids": end["tuned"].share,
    }
    return Findings(
        study=STUDY.name,
        title=STUDY.title,
        summary="In noisy sequences some triggers were followed by the sequence's own token and some by noise. To "
        f"which of them does the second layer attend from the last trigger? {note}",
        profile=provenance.profile,
        provenance=provenance,
        claims=judge_means(CLAIMS, measured, provenance.profile),
        figures=(
            _lines(along["noisy"], "Trained with noise: attention of the last trigger (Fig 5, left)", "training"),
            _lines(
                along["tuned"], "Fine-tuned with noise: attention of the last trigger (Fig 5, right)", "fine-tuning"
            ),
            _maps(runs, seen),
        ),
        tables=(_table({"trained with noise": end["noisy"], "without noise": clean, "fine-tuned": end["tuned"]}),),
    )


def _lines(along: dict[int, Attention], title: str, time: str) -> LineFigure:
    at = [step + 1 for step in along]
    right, noise = (torch.stack([getattr(one, name) for one in along.values()], dim=1) for name in ("right", "noise"))
    return LineFigure(
        title=title,
        caption="Attention of the second layer from the last position, on noisy sequences that have both noise and the "
        "right token after an earlier trigger; sums over positions, mean and range over seeds. The step axis starts at "
        "1 for the model before the first step.",
        x_label=f"step of {time} + 1",
        y_label="attention",
        lines=(
            line("[trigger] + y", at, right),
            line("[trigger] + noise", at, noise),
            line("elsewhere", at, 1 - right - noise),
        ),
        log_x=True,
        y_range=(0.0, 1.0),
    )


def _maps(runs: Sequence[TrainedRun], seen: Followers) -> MapFigure:
    """One sequence through the first member of each run, a row for each checkpoint, as Figure 5 draws it."""
    right, noise = seen.right.sum(dim=1), seen.noise.sum(dim=1)
    row = int(torch.minimum(right, noise).where(right + noise <= _MOST_COLUMNS, 0).argmax())
    places = (seen.right[row] + seen.noise[row]).nonzero().flatten()
    ticks = tuple(f"{place} {'y' if seen.right[row, place] else 'noise'}" for place in places.tolist())

    def of(run: TrainedRun, title: str) -> Map:
        rows = [
            look(run.ensemble(step).select([0]), seen.tokens[row : row + 1], [_PATTERN])[_PATTERN][0, 0, 0, -1, places]
            for step in run.checkpoints
        ]
        return Map(title, grid(torch.stack(rows)), tuple(map(str, run.checkpoints)), ticks)

    noisy, tuned = runs
    return MapFigure(
        title="One sequence: attention of the last trigger along training (Fig 5)",
        caption="Second layer, first seed; a row for each checkpoint, a column for each position that followed an "
        "earlier trigger, with what stands there. The sequence has most of both among those with "
        f"at most {_MOST_COLUMNS}.",
        maps=((of(noisy, "trained with noise"), of(tuned, "trained without, then fine-tuned with noise")),),
        x_label="position that followed a trigger",
        y_label="step",
    )


def _table(models: dict[str, Attention]) -> Table:
    rows: list[tuple[str | float, ...]] = [
        (name, *(float(value.mean()) for value in (one.right, one.noise, one.share, one.ratio)))
        for name, one in models.items()
    ]
    return Table(
        title="Attention of the last trigger",
        caption="Means over seeds, on noisy sequences; sums over all positions of each kind. Share: of noise in the "
        "attention to all that followed the trigger. One to one: attention to one noise over that to one right token.",
        columns=("model", "[trigger] + y", "[trigger] + noise", "share of noise", "one to one"),
        rows=tuple(rows),
    )


STUDY = Study(
    name="truncation/avoided-noise",
    title="Noisy recall: attention avoids the noise",
    claims=CLAIMS,
    profiles=profiles(noisy_and_tuned, tuned=True),
    analyse=analyse,
)
