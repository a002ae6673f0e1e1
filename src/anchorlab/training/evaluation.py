"""Evaluation: what each member scores on held-out sequences, plain and under weight edits."""

from collections.abc import Iterator, Mapping, Sequence
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
from anchorlab.training.feed import FixedSampleFeed, map_batch
from anchorlab.training.recipe import Evaluation, Members

PLAIN = "none"
"""The name under which metrics of unedited weights are recorded."""

_ROWS = 1024  # sequences evaluated at once, to bound memory


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
        self, task: Task, evaluation: Evaluation, members: Members, device: torch.device, dtype: torch.dtype,
        mixed: bool = False, fixed: FixedSampleFeed | None = None,
    ) -> None:
        self.task, self.members, self.mixed = task, members, mixed
        self.edits: Mapping[str, Sequence[Edit]] = {PLAIN: (), **evaluation.edits}
        self._batches: dict[str, list[Batch]] = {}
        for split in evaluation.splits or task.splits:
            self._batches[split] = [
                self._move(
                    _first(fixed.samples[index], evaluation.size) if fixed is not None and split == "train"
                    else task.sample(split, evaluation.size, child_seed(members.stream("data", index), "eval", split)),
                    device, dtype,
                )
                for index in range(len(members))
            ]

    @staticmethod
    def _move(batch: Batch, device: torch.device, dtype: torch.dtype) -> Batch:
        return map_batch(batch, lambda value: value.to(device, dtype if value.is_floating_point() else value.dtype))

    @torch.no_grad()
    def measure(self, ensemble: Ensemble, step: int, resting: frozenset[int] = frozenset()) -> list[Row]:
        """All metrics of all members at `step`, in a fixed order, leaving out `resting` members."""
        rows = []
        variants = apply_each(ensemble.weights, list(self.edits.values()))
        for edit, weights_of_all in zip(self.edits, variants, strict=True):
            edited = ensemble.with_weights(weights_of_all)
            for member in range(ensemble.size):
                if member in resting:
                    continue
                weights = edited.member_weights(member)
                for split, batches in self._batches.items():
                    for group, metric, value in self._means(ensemble, weights, batches[member]):
                        rows.append(Row(member, self.members.seeds[member], step, split, group, edit, metric, value))
        return rows

    def _means(self, ensemble: Ensemble, weights: Mapping[str, Tensor], batch: Batch) -> Iterator[tuple[str, str, float]]:
        outputs = []
        for start in range(0, len(batch), _ROWS):
            rows = slice(start, start + _ROWS)
            positions = batch.positions if batch.positions.ndim == 1 else batch.positions[rows]
            with autocast(batch.inputs.device, self.mixed):
                outputs.append(predict(ensemble.template, batch.inputs[rows], positions, weights))
        output = torch.cat(outputs)
        output = output.float() if self.mixed else output
        measured = {"loss": loss_per_position(self.task.loss, output, batch.targets),
                    **self.task.metrics(output, batch)}
        scored = batch.weights if batch.weights is not None else torch.ones_like(measured["loss"])
        for number, group in enumerate(batch.groups):
            counted = scored if batch.group is None else scored * (batch.group == number).unsqueeze(1)
            total = counted.sum()
            if total == 0:
                continue
            for metric, values in measured.items():
                yield group, metric, float((values * counted).sum() / total)


def _first(batch: Batch, size: int) -> Batch:
    return map_batch(batch, lambda value: value if value is batch.positions and value.ndim == 1 else value[:size])
