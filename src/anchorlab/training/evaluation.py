"""Evaluation: what each member scores on held-out sequences, plain and under weight edits."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from anchorlab.models.edits import Edit, apply_each
from anchorlab.models.model import predict
from anchorlab.rng import child_seed
from anchorlab.tasks import Batch, Task
from anchorlab.tasks.task import loss_per_position
from anchorlab.training.ensemble import Ensemble
from anchorlab.training.executions.step import autocast
from anchorlab.training.feed import FixedSampleFeed, first_rows, map_batch
from anchorlab.training.recipe import Evaluation, Members

PLAIN = "none"
"""The name under which metrics of unedited weights are recorded."""

_ROWS = 128  # sequences evaluated at once, to bound memory


class Row(NamedTuple):
    """One measured number: the mean of a metric over the scored positions of a group of sequences."""

    member: int
    seed: int
    step: int
    split: str
    group: str
    edit: str
    metric: str
    value: float


class Evaluator:
    """Measures all members on sequences drawn once: of each split, from each member's own data stream.

    On `train`, a recipe with a fixed sample is measured on that sample's first sequences, a stream on fresh ones.
    """

    def __init__(
        self,
        task: Task,
        evaluation: Evaluation,
        members: Members,
        device: torch.device,
        dtype: torch.dtype,
        mixed: bool = False,
        fixed: FixedSampleFeed | None = None,
    ) -> None:
        self.task, self.members, self.mixed = task, members, mixed
        self.edits: Mapping[str, Sequence[Edit]] = {PLAIN: (), **evaluation.edits}

        def move(value: Tensor) -> Tensor:
            return value.to(device, dtype if value.is_floating_point() else value.dtype)

        @cache  # members with the same data are measured on one copy
        def draw(split: str, seed: int) -> Batch:
            batch = task.sample(split, evaluation.size, child_seed(seed, "eval", split))
            # A copy in torch's own memory, whose alignment never varies: products may depend on it in the last bit.
            return map_batch(first_rows(batch, evaluation.size), move)

        seeds = [members.stream("data", index) for index in range(len(members))]
        self._batches = {
            split: [draw(split, seed) for seed in seeds]
            if fixed is None or split != "train"
            else [map_batch(batch, move) for batch in fixed.first]
            for split in evaluation.splits or task.splits
        }
        self._shares = {
            split: [_group_shares(batch, dtype) for batch in batches] for split, batches in self._batches.items()
        }

    @torch.no_grad()
    def measure(self, ensemble: Ensemble, step: int, resting: frozenset[int] = frozenset()) -> list[Row]:
        """All metrics of all members at `step`, in a fixed order, leaving out `resting` members."""
        places: list[tuple[int, str, str, str, str]] = []
        values: list[Tensor] = []
        variants = apply_each(ensemble.weights, list(self.edits.values()))
        for edit, weights_of_all in zip(self.edits, variants, strict=True):
            for member in (member for member in range(ensemble.size) if member not in resting):
                weights = {name: value[member] for name, value in weights_of_all.items()}
                for split, batches in self._batches.items():
                    measured = self._measured(ensemble, weights, batches[member])
                    for group, shares in self._shares[split][member].items():
                        for metric, each in measured.items():
                            places.append((member, split, group, edit, metric))
                            values.append((each * shares).where(shares > 0, 0).sum())
        # All numbers leave the device at once: asking for them one by one would wait for it each time.
        numbers = torch.stack(values).tolist() if values else []
        return [
            Row(member, self.members.seeds[member], step, split, group, edit, metric, number)
            for (member, split, group, edit, metric), number in zip(places, numbers, strict=True)
        ]

    def _measured(self, ensemble: Ensemble, weights: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        """Each metric at each scored position, `[batch scored]`."""
        outputs = []
        for start in range(0, len(batch), _ROWS):
            rows = slice(start, start + _ROWS)
            positions = batch.positions if batch.positions.ndim == 1 else batch.positions[rows]
            with autocast(batch.inputs.device, self.mixed):
                outputs.append(predict(ensemble.template, batch.inputs[rows], positions, weights))
        output = torch.cat(outputs)
        output = output.float() if self.mixed else output
        return {"loss": loss_per_position(self.task.loss, output, batch.targets), **self.task.metrics(output, batch)}


def _group_shares(batch: Batch, dtype: torch.dtype) -> dict[str, Tensor]:
    """How much each scored position counts in the mean over all sequences and over each group that occurs.

    Each is `[batch scored]` and sums to 1.
    """
    everywhere = torch.ones(batch.targets.shape[:2], dtype=dtype, device=batch.inputs.device)
    scored = everywhere if batch.weights is None else batch.weights.to(dtype)
    counted = {"all": scored}
    if batch.group is not None:
        counted |= {group: scored * (batch.group == number).unsqueeze(1) for number, group in enumerate(batch.groups)}
    return {group: weights / weights.sum() for group, weights in counted.items() if weights.any()}
