"""What composite models put out at every position, depth by depth: mapping sequences, and what they learn.

Source: anchor functions, section 4.4, Definition 1, Figures 6 and 7.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from anchorlab.lens import distinct_counts, look, mapping_sequences
from anchorlab.models import DecoderSpec
from anchorlab.studies.kit import along, at_end
from anchorlab.tasks import AnchorFunction, Batch, Task
from anchorlab.training import TrainedRun

SPLITS = {"train": "training", "test on data": "test on data", "test on task": "test on task"}
REACHED = 0.9

_LOOKED_AT = 1600  # inputs of the 15 trained pairs, about 107 of each; the unseen pair has a 15th of that


@dataclass(frozen=True)
class Look:
    """What a run's members put out at every position of test inputs of all pairs.

    Shapes
        outputs: most probable tokens `[member batch position]`
        sequences: their mapping sequences `[member batch move]`
        right: whether the last position's is the answer `[member batch]`
        kept: whether that of every position from the second anchor on is `[member batch]`
        first, second: offsets from the key at the first and second anchor `[member batch]`
        pair: index into `pairs` `[batch]`
    """

    batch: Batch
    outputs: Tensor
    sequences: Tensor
    right: Tensor
    kept: Tensor
    first: Tensor
    second: Tensor
    pair: Tensor
    pairs: tuple[str, ...]

    def counts(self) -> Tensor:
        """How many mapping sequences each pair has over its inputs answered rightly, `[member pair]`, NaN for none."""
        return self._per_pair(lambda count: torch.tensor(len(count)))

    def most_common(self) -> Tensor:
        """The share of each pair's inputs answered rightly that have its most common mapping sequence, as `counts`."""
        return self._per_pair(lambda count: count[0] / count.sum())

    def _per_pair(self, number: Callable[[Tensor], Tensor]) -> Tensor:
        values = torch.full((len(self.outputs), len(self.pairs)), float("nan"))
        for member in range(len(self.outputs)):
            for pair in range(len(self.pairs)):
                count = distinct_counts(self.sequences[member, self.right[member] & (self.pair == pair)])
                if len(count):
                    values[member, pair] = number(count)
        return values


def read_outputs(batches: Sequence[Batch], outputs: Tensor) -> Look:
    """The numbers of a `Look` from outputs `[member batch position]` on the batches' inputs, one after the other."""
    batch = _joined(batches)
    keys, second = batch.latents["key_positions"], batch.latents["anchor_positions"][:, 1:]
    key = batch.inputs.gather(1, keys)[:, 0]
    answered = outputs == batch.answers
    after = torch.arange(batch.inputs.shape[1]) >= second
    assert batch.group is not None  # the task groups by anchors
    return Look(
        batch=batch,
        outputs=outputs,
        sequences=mapping_sequences(batch.inputs, outputs, keys[:, 0]),
        right=answered[..., -1],
        kept=(answered | ~after).all(dim=-1),
        first=_at(outputs, batch.latents["anchor_positions"][:, :1]) - key,
        second=_at(outputs, second) - key,
        pair=batch.group,
        pairs=batch.groups,
    )


def _at(outputs: Tensor, position: Tensor) -> Tensor:
    """`[member batch position]` at one position `[batch 1]` of each input."""
    return outputs.gather(-1, position.expand(*outputs.shape[:-1], 1)).squeeze(-1)


def _joined(batches: Sequence[Batch]) -> Batch:
    """Batches of one task as one."""
    first = batches[0]
    return Batch(
        inputs=torch.cat([one.inputs for one in batches]),
        targets=torch.cat([one.targets for one in batches]),
        answers=torch.cat([one.answers for one in batches]),
        positions=first.positions,
        split="test",
        group=torch.cat([one.group for one in batches if one.group is not None]),
        groups=first.groups,
        latents={name: torch.cat([one.latents[name] for one in batches]) for name in first.latents},
    )


def _look(run: TrainedRun) -> Look:
    of = run.experiment.task
    batches = [of.sample("test on data", _LOOKED_AT, seed=0), of.sample("test on task", _LOOKED_AT // 15, seed=0)]
    record = look(run.ensemble(), torch.cat([batch.inputs for batch in batches]))
    return read_outputs(batches, record["output"].argmax(dim=-1))


def first_reached(steps: Sequence[int], values: Tensor, level: float = REACHED) -> Tensor:
    """The first of `steps` at which `[member step]` is above `level`, per member; infinite where it never is."""
    above = values > level
    first = torch.tensor(steps, dtype=torch.float32)[above.int().argmax(dim=1)]
    return first.where(above.any(dim=1), torch.tensor(float("inf")))


def offsets_of(of: Task) -> dict[int, int]:
    """By how much each anchor's operation moves a key."""
    assert isinstance(of, AnchorFunction)
    middle = sum(of.vocabulary.items) // 2
    return {
        anchor: int(operation.results(of.vocabulary.size)[middle]) - middle
        for anchor, operation in of.operations.items()
    }


@dataclass(frozen=True)
class Depth:
    """What one depth gives: its accuracies, each `[member]`, when they were reached, and what its outputs are like."""

    run: TrainedRun
    accuracy: dict[str, Tensor]
    reached: dict[str, Tensor]
    seen: Look

    @classmethod
    def of(cls, run: TrainedRun) -> "Depth":
        """The numbers of one run."""
        return cls(
            run,
            {split: at_end(run, split, "accuracy") for split in SPLITS},
            {split: first_reached(*along(run, split, "accuracy")) for split in SPLITS},
            _look(run),
        )

    @property
    def layers(self) -> int:
        """How many blocks the models have."""
        assert isinstance(self.run.experiment.model, DecoderSpec)
        return self.run.experiment.model.layers

    @property
    def offsets_doubled(self) -> Tensor:
        """The share of anchors that move the key by twice their operation at the first anchor, `[member]`."""
        doubled = [
            self.common_first(anchor)[0] == 2 * offset
            for anchor, offset in offsets_of(self.run.experiment.task).items()
        ]
        return torch.stack(doubled).float().mean(dim=0)

    def common_first(self, anchor: int) -> tuple[Tensor, Tensor]:
        """The most common offset from the key where `anchor` stands first, `[member]`, and its share of the inputs."""
        chosen = self.seen.batch.latents["anchors"][:, 0] == anchor
        return _most_common(self.seen.first[:, chosen])


def _most_common(values: Tensor) -> tuple[Tensor, Tensor]:
    """The most common of `[member batch]`, and its share."""
    common = values.mode(dim=1).values
    return common, (values == common[:, None]).float().mean(dim=1)


def share_of(what: Tensor, of: Tensor) -> Tensor:
    """Of the inputs `[member batch]` that are `of`, the share that are `what`, `[member]`."""
    return (what & of).sum(dim=1) / of.sum(dim=1)
