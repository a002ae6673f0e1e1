"""Evaluation: what each member scores on held-out sequences, plain and under weight edits."""

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor

from anchorlab.models.edits import Edit, apply_each
from anchorlab.models.model import predict
from anchorlab.models.transformer import Transformer
from anchorlab.rng import child_seed
from anchorlab.tasks import Batch, Task
from anchorlab.tasks.task import loss_per_position
from anchorlab.training.ensemble import Ensemble
from anchorlab.training.executions.step import autocast
from anchorlab.training.feed import FixedSampleFeed, first_rows, map_batch
from anchorlab.training.recipe import Evaluation, Members

UNEDITED = "none"
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
        self.edits: Mapping[str, Sequence[Edit]] = {UNEDITED: (), **evaluation.edits}

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
        learning = [member for member in range(ensemble.size) if member not in resting]
        variants = apply_each(ensemble.weights, list(self.edits.values()))
        first = [_first_block(ensemble, edits) for edits in self.edits.values()]
        found: dict[tuple[str, int, str], dict[str, Tensor]] = {}
        for member, split in product(learning, self._batches):
            weights = [{name: value[member] for name, value in variant.items()} for variant in variants]
            measured = self._measured(ensemble, weights, first, self._batches[split][member])
            found |= {(edit, member, split): each for edit, each in zip(self.edits, measured, strict=True)}
        for edit, member, split in product(self.edits, learning, self._batches):
            for group, shares in self._shares[split][member].items():
                for metric, each in found[edit, member, split].items():
                    places.append((member, split, group, edit, metric))
                    values.append((each * shares).where(shares > 0, 0).sum())
        # All numbers leave the device at once: asking for them one by one would wait for it each time.
        numbers = torch.stack(values).tolist() if values else []
        return [
            Row(member, self.members.seeds[member], step, split, group, edit, metric, number)
            for (member, split, group, edit, metric), number in zip(places, numbers, strict=True)
        ]

    def _measured(
        self, ensemble: Ensemble, variants: Sequence[Mapping[str, Tensor]], first: Sequence[int], batch: Batch
    ) -> list[dict[str, Tensor]]:
        """Each metric at each scored position, `[batch scored]`, under each variant of one member's weights.

        The first variant is the plain one; what enters the `first` block that another changes is the plain stream.
        """
        template, outputs = ensemble.template, [list[Tensor]() for _ in variants]
        shared = {f"blocks.{block}.hook_resid_pre" for block in first if block > 0}
        for start in range(0, len(batch), _ROWS):
            rows = slice(start, start + _ROWS)
            inputs = batch.inputs[rows]
            positions = batch.positions if batch.positions.ndim == 1 else batch.positions[rows]
            streams: dict[str, Tensor] = {}

            def keep(site: str, value: Tensor, streams: dict[str, Tensor] = streams) -> Tensor:
                if site in shared:
                    streams[site] = value
                return value

            with autocast(inputs.device, self.mixed):
                for index, (weights, block) in enumerate(zip(variants, first, strict=True)):
                    others: dict[str, Any] = {}
                    if shared and index == 0:
                        others = {"tap": keep}
                    elif block > 0:
                        others = {"entering": (block, streams[f"blocks.{block}.hook_resid_pre"])}
                    outputs[index].append(predict(template, inputs, positions, weights, **others))
        return [self._metrics(torch.cat(each), batch) for each in outputs]

    def _metrics(self, output: Tensor, batch: Batch) -> dict[str, Tensor]:
        output = output.float() if self.mixed else output
        return {"loss": loss_per_position(self.task.loss, output, batch.targets), **self.task.metrics(output, batch)}


def _first_block(ensemble: Ensemble, edits: Sequence[Edit]) -> int:
    """The first block that edits change; 0, which shares nothing, also for edits before and after the blocks."""
    if not isinstance(ensemble.template, Transformer):
        return 0
    known = list(ensemble.weights)
    names = [name.split(".") for edit in edits for name in edit.names(known)]
    return min((int(parts[1]) if parts[0] == "blocks" else 0 for parts in names), default=0)


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
