"""Noisy recall: attention avoids the noise.

In noisy sequences some triggers were followed by the sequence's own token and some by noise. To which of these tokens
does layer 1 attend from the last trigger?

Source: truncated weights, sections 4 and 4.2, Figure 5 and appendix A.1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorlab.findings import LineFigure, Map, MapFigure, Table, at_least, at_most, grid, within
from anchorlab.lens import look
from anchorlab.papers.truncation.noisy_recall import by_step, noisy_and_tuned, noisy_study
from anchorlab.studies import Measurement, Reading, claim, measures_in, over, reading
from anchorlab.studies.kit import mean_table
from anchorlab.tasks import Batch
from anchorlab.tasks.recall.noisy import NoisyRecall
from anchorlab.training import Ensemble, TrainedRun

ATTENDS = 0.5
"""The least total attention to the tokens after the trigger at which a model is said to attend to them."""

_PATTERN = "blocks.1.attn.hook_pattern"
_SEQUENCES, _SEED = 512, 0  # how many sequences the models read, and from which seed
_MOST_COLUMNS = 16  # of the map of one sequence, so that each column has its label


@dataclass(frozen=True)
class Followers:
    """Noisy sequences in which both noise and the right token followed the trigger, with the places of both."""

    tokens: Int[Tensor, "batch position"]
    right: Float[Tensor, "batch position"]  # 1 at the y of [trigger] + y, else 0
    noise: Float[Tensor, "batch position"]  # 1 at the noise of [trigger] + noise, else 0


def followers(task: NoisyRecall, batch: Batch) -> Followers:
    """Return the sequences in which both y and noise followed the trigger, with their places; y is not the noise."""
    tokens, output = batch.inputs, batch.latents["output"][:, :1]
    after = torch.zeros_like(tokens, dtype=torch.bool)
    after[:, 1:] = tokens[:, :-1] == task.triggers[0]
    after[:, -1] = False  # the trigger at the last position is set, not drawn
    right, noise = after & (tokens == output), after & (tokens == task.noise_token)
    kept = right.any(dim=1) & noise.any(dim=1) & (output[:, 0] != task.noise_token)
    return Followers(tokens[kept], right[kept].float(), noise[kept].float())


@dataclass(frozen=True)
class Attention:
    """How much the last position attends to all tokens of a kind, mean over sequences."""

    right: Float[Tensor, "member"]  # attention to all [trigger] + y
    noise: Float[Tensor, "member"]  # attention to all [trigger] + noise
    # attention to one noise token over that to one right token, from their means over all sequences
    ratio: Float[Tensor, "member"]

    @property
    def share(self) -> Float[Tensor, "member"]:
        """The share of noise in the attention to all tokens that followed the trigger."""
        return self.noise / (self.right + self.noise)


def attention(ensemble: Ensemble, found: Followers) -> Attention:
    """Return where layer 1's attention goes from the last position."""
    pattern = look(ensemble, found.tokens, [_PATTERN])[_PATTERN][:, :, 0, -1]
    right, noise = (pattern * found.right).sum(dim=2), (pattern * found.noise).sum(dim=2)
    each_right, each_noise = right.sum(dim=1) / found.right.sum(), noise.sum(dim=1) / found.noise.sum()
    return Attention(right.mean(dim=1), noise.mean(dim=1), each_noise / each_right)


def _along(label: str) -> cached_property[Sequence[Attention]]:
    return reading(
        lambda seen: [attention(seen.runs[label].ensemble(step), seen.found) for step in seen.runs[label].checkpoints]
    )


class Seen(Reading):
    """Attention along a training with noise, and along the fine-tuning with noise after a training without."""

    noisy, tuned = _along("noisy"), _along("tuned")

    @reading
    def found(self) -> Followers:
        """The sequences that the models read."""
        return followers(self.setting.task, self.setting.task.sample("train", _SEQUENCES, _SEED))


@claim("section 4.2 and Fig 5 left", "only towards the correct tokens", at_least(0.5))
def noisy_attends(seen: Seen) -> Float[Tensor, "seed"]:
    """A model trained with noise attends to the right tokens that followed the trigger.

    Total attention from the last position's trigger to [trigger] + y, trained with noise, mean over seeds.
    """
    return seen.noisy[-1].right


@claim("section 4.2 and Fig 5 left", "only towards the correct tokens", at_most(0.1))
def noisy_avoids(seen: Seen) -> Float[Tensor, "seed"]:
    """A model trained with noise does not attend to the noise that followed the trigger.

    Share of noise in the attention to all tokens that followed the trigger, trained with noise, mean over seeds.
    """
    return seen.noisy[-1].share


@claim("Fig 5 right, first step", "all tokens just after the triggers", at_least(ATTENDS))
def clean_attends(seen: Seen) -> Float[Tensor, "seed"]:
    """A model trained without noise attends to all that followed the trigger.

    Total attention to [trigger] + y and [trigger] + noise, trained without noise, mean over seeds.
    """
    return seen.tuned[0].right + seen.tuned[0].noise


@claim("Fig 5 right, first step", "towards all", within(0.5, 2.0))
def clean_attends_to_both(seen: Seen) -> Measurement:
    """A model trained without noise attends to noise after the trigger as much as to right tokens.

    Attention to one noise token after the trigger over that to one right token, trained without noise, mean over seeds;
    judged only in models whose total attention to both is at least {ATTENDS:g}, more than uniform attention gives.
    """
    clean, noisy = seen.tuned[0], seen.noisy[-1]
    ratio = clean.ratio[clean.right + clean.noise >= ATTENDS]
    return over(ratio, detail=f"{float(noisy.ratio.mean()):.3g} trained with noise")


@claim("Fig 5 right", "only focused on the correct tokens", at_least(0.5))
def tuned_attends(seen: Seen) -> Float[Tensor, "seed"]:
    """Fine-tuned with noise, the model attends to the right tokens that followed the trigger.

    Total attention to [trigger] + y, after fine-tuning, mean over seeds.
    """
    return seen.tuned[-1].right


@claim("Fig 5 right", "only focused on the correct tokens", at_most(0.1))
def tuned_avoids(seen: Seen) -> Float[Tensor, "seed"]:
    """Fine-tuned with noise, the model no longer attends to the noise that followed the trigger.

    Share of noise in the attention to all tokens that followed the trigger, after fine-tuning, mean over seeds.
    """
    return seen.tuned[-1].share


def _curves(trained: str, panel: str, time: str, run: TrainedRun, along: Sequence[Attention]) -> LineFigure:
    right, noise = torch.stack([one.right for one in along], dim=1), torch.stack([one.noise for one in along], dim=1)
    return by_step(
        f"{trained}: attention of the last trigger (Fig 5, {panel})",
        run.checkpoints,
        {"[trigger] + y": right, "[trigger] + noise": noise, "elsewhere": 1 - right - noise},
        "Attention of layer 1 from the last position, on noisy sequences that have both noise and the right "
        "token after an earlier trigger; sums over positions, mean and range over seeds.",
        x_label=f"step of {time} + 1",
        y_label="attention",
    )


def _table(seen: Seen) -> Table:
    models = {"trained with noise": seen.noisy[-1], "without noise": seen.tuned[0], "fine-tuned": seen.tuned[-1]}
    return mean_table(
        "Attention of the last trigger",
        "Means over seeds, on noisy sequences; sums over all positions of each kind. Share: of noise in the attention "
        "to all that followed the trigger. One to one: attention to one noise token over that to one right token.",
        "model",
        {
            name: {
                "[trigger] + y": one.right,
                "[trigger] + noise": one.noise,
                "share of noise": one.share,
                "one to one": one.ratio,
            }
            for name, one in models.items()
        },
    )


def _maps(seen: Seen) -> MapFigure:
    found = seen.found
    right, noise = found.right.sum(dim=1), found.noise.sum(dim=1)
    row = int(torch.minimum(right, noise).where(right + noise <= _MOST_COLUMNS, 0).argmax())
    tokens, places = found.tokens[row : row + 1], (found.right[row] + found.noise[row]).nonzero().flatten()
    ticks = tuple(f"{place} {'y' if found.right[row, place] else 'noise'}" for place in places.tolist())

    def drawn(label: str, title: str) -> Map:
        run = seen.runs[label]
        ensembles = [run.ensemble(step).select([0]) for step in run.checkpoints]
        rows = [look(ensemble, tokens, [_PATTERN])[_PATTERN][0, 0, 0, -1, places] for ensemble in ensembles]
        return Map(title, grid(torch.stack(rows)), tuple(map(str, run.checkpoints)), ticks)

    seed = seen.first.experiment.members.seeds[0]
    both = drawn("noisy", "trained with noise"), drawn("tuned", "trained without, then fine-tuned with noise")
    return MapFigure(
        title="One sequence: attention of the last trigger along training (Fig 5)",
        caption=f"Layer 1, seed {seed}; a row for each checkpoint, a column for each position that followed an "
        "earlier trigger, labelled with what is there. Of the sequences with at most "
        f"{_MOST_COLUMNS} such positions, this one has the most of both kinds.",
        maps=(both,),
        x_label="position that followed a trigger",
        y_label="step",
        seeds=str(seed),
    )


STUDY = noisy_study(
    "truncation/avoided-noise",
    __doc__,
    measures_in(__name__),
    trains=noisy_and_tuned,
    reads=Seen,
    draws=(
        lambda seen: _curves("Trained with noise", "left", "training", seen.runs["noisy"], seen.noisy),
        lambda seen: _curves("Fine-tuned with noise", "right", "fine-tuning", seen.runs["tuned"], seen.tuned),
        _maps,
        _table,
    ),
)
