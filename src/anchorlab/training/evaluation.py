"""Evaluation: measure each member on sequences of each split, with unedited weights and under weight edits.

Members are measured one by one, or mapped in one pass.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from anchorlab.models.edits import Edit, apply_each
from anchorlab.models.model import predict
from anchorlab.models.transformer import Transformer
from anchorlab.rng import child_seed
from anchorlab.tasks import Batch, Task
from anchorlab.tasks.metrics import Losses
from anchorlab.training.ensemble import Ensemble
from anchorlab.training.executions.loss import autocast
from anchorlab.training.feed import FixedSampleFeed, first_rows, map_batch
from anchorlab.training.members import Members
from anchorlab.training.recipe import Evaluation

logger = logging.getLogger(__name__)

UNEDITED = "none"
"""The value of the `edit` column for metrics of unedited weights."""

OBJECTIVE = "objective"
"""The metric of a loss that a recipe puts in place of the task's."""

ROWS = 128
"""The largest number of sequences in one forward pass, to bound memory."""


class Key(NamedTuple):
    """The edit, member, split, group and metric of a measured number."""

    edit: str
    member: int
    split: str
    group: str
    metric: str


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
    """Measure all members on sequences of each split, drawn once from each member's own data stream.

    The split `train` is measured on the first sequences of the feed `fixed`, if training has a fixed sample, else on
    new sequences. The recipe's own `loss`, if it has one, is measured too. With `mixed`, products run in bfloat16.
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
        loss: Losses | None = None,
    ) -> None:
        self.task, self.members, self.mixed, self.size, self.loss = task, members, mixed, evaluation.size, loss
        self.edits: Mapping[str, Sequence[Edit]] = {UNEDITED: (), **evaluation.edits}

        def move(value: Tensor) -> Tensor:
            return value.to(device, dtype if value.is_floating_point() else value.dtype)

        @cache  # members with the same data share one copy
        def draw(split: str, seed: int) -> Batch:
            batch = task.sample(split, evaluation.size, child_seed(seed, "eval", split))
            # Copy into torch's own memory, which always has the same alignment: it can change a product's last bit.
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
        """Measure all members except `resting` ones.

        Returns: one row per edit, member, split, group and metric, in this order, for `step`.
        """
        members = [member for member in range(ensemble.size) if member not in resting]
        found = self._means(ensemble, members)
        # Transfer all numbers at once: reading them one by one would wait for the device each time.
        numbers = torch.stack(list(found.values())).tolist() if found else []
        return [
            Row(key.member, self.members.seeds[key.member], step, key.split, key.group, key.edit, key.metric, number)
            for key, number in zip(found, numbers, strict=True)
        ]

    def _means(self, ensemble: Ensemble, members: Sequence[int]) -> dict[Key, Float[Tensor, ""]]:
        """Return each metric's mean over each group of sequences, in the order of the rows."""
        variants = apply_each(ensemble.weights, list(self.edits.values()))
        first = self._first_blocks(ensemble)
        found: dict[tuple[str, int, str], dict[str, Tensor]] = {}
        for member, split in product(members, self._batches):
            weights = [
                {
                    name: value[member] if value is ensemble.weights[name] else value[member].clone()
                    for name, value in variant.items()
                }
                for variant in variants
            ]
            measured = self._measure_member(ensemble, weights, first, self._batches[split][member])
            found |= {(edit, member, split): each for edit, each in zip(self.edits, measured, strict=True)}
        return {
            Key(edit, member, split, group, metric): (each * shares).where(shares > 0, 0).sum()
            for edit, member, split in product(self.edits, members, self._batches)
            for group, shares in self._shares[split][member].items()
            for metric, each in found[edit, member, split].items()
        }

    def _first_blocks(self, ensemble: Ensemble) -> list[int]:
        return [first_changed_block(ensemble.template, [*ensemble.weights], each) for each in self.edits.values()]

    def _measure_member(
        self, ensemble: Ensemble, variants: Sequence[Mapping[str, Tensor]], first: Sequence[int], batch: Batch
    ) -> list[dict[str, Shaped[Tensor, "batch scored"]]]:
        """Return each metric at each scored position, for each variant of one member's weights, unedited ones first.

        `first` is the first block that each variant changes: the stream before it is computed once, unedited.
        """
        template, outputs = ensemble.template, [list[Tensor]() for _ in variants]
        shared = {f"blocks.{block}.hook_resid_pre" for block in first if block > 0}
        for start in range(0, len(batch), ROWS):
            rows = slice(start, start + ROWS)
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

    def _metrics(
        self, output: Float[Tensor, "batch scored output"], batch: Batch
    ) -> dict[str, Shaped[Tensor, "batch scored"]]:
        output = output.float() if self.mixed else output
        own = {} if self.loss is None else {OBJECTIVE: self.loss(output, batch.targets)}
        return {"loss": self.task.losses(output, batch.targets), **own, **self.task.metrics(output, batch)}


class MappedEvaluator(Evaluator):
    """Measure all members at once; the number of kernels does not depend on the number of members.

    Resting members are measured too and their numbers dropped: leaving them out would copy the others' weights. If
    torch cannot map a user's metrics, or memory runs out, members are measured one by one; the reason is logged and
    kept in `fallback`.
    """

    fallback: str | None = None

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        # Members with different data sizes may have fewer sequences. Pad all to one length, so that a member's sum has
        # the same length whichever other members there are.
        longest = 0 if self.members.data_size is None else self.size
        self._tensors = {split: _stack_tensors(batches, longest) for split, batches in self._batches.items()}
        self._stacked_shares = {split: _stack_shares(each, longest) for split, each in self._shares.items()}

    def _means(self, ensemble: Ensemble, members: Sequence[int]) -> dict[Key, Float[Tensor, ""]]:
        if self.fallback is None:
            try:
                return self._mapped_means(ensemble, members)
            except RuntimeError as error:
                self.fallback = str(error).splitlines()[0]
                logger.warning("members are measured one by one: %s", self.fallback)
        return super()._means(ensemble, members)

    def _mapped_means(self, ensemble: Ensemble, members: Sequence[int]) -> dict[Key, Float[Tensor, ""]]:
        variants = apply_each(ensemble.weights, list(self.edits.values()))
        first = self._first_blocks(ensemble)
        means: dict[tuple[str, str, str], dict[str, Tensor]] = {}
        for split, (example, *_) in self._batches.items():
            tensors, axes = self._tensors[split]

            def measure(
                weights: Sequence[Mapping[str, Tensor]], tensors: dict[str, Any], example: Batch = example
            ) -> list[dict[str, Tensor]]:
                return self._measure_member(ensemble, weights, first, replace(example, **tensors))

            measured = torch.func.vmap(measure, in_dims=(0, axes))(variants, tensors)
            for (edit, each), group in product(zip(self.edits, measured, strict=True), self._stacked_shares[split]):
                shares = self._stacked_shares[split][group]
                means[edit, split, group] = {
                    metric: (values * shares).where(shares > 0, 0).sum((1, 2)) for metric, values in each.items()
                }
        return {
            Key(edit, member, split, group, metric): values[member]
            for edit, member, split in product(self.edits, members, self._batches)
            for group in self._shares[split][member]
            for metric, values in means[edit, split, group].items()
        }


def first_changed_block(template: nn.Module, known: Sequence[str], edits: Sequence[Edit]) -> int:
    """Return the index of the first block that edits change; 0 if they change weights outside the blocks.

    0 also for a model that is no `Transformer`. With 0, the whole forward pass is repeated. `known` names all weights.
    """
    if not isinstance(template, Transformer):
        return 0
    names = [name.split(".") for edit in edits for name in edit.names(known)]
    return min((int(parts[1]) if parts[0] == "blocks" else 0 for parts in names), default=0)


def _group_shares(batch: Batch, dtype: torch.dtype) -> dict[str, Float[Tensor, "batch scored"]]:
    """Return the weights, of sum 1, of the scored positions in the mean over `all` sequences and over each group."""
    everywhere = torch.ones(batch.targets.shape[:2], dtype=dtype, device=batch.inputs.device)
    scored = everywhere if batch.weights is None else batch.weights.to(dtype)
    counted = {"all": scored}
    if batch.group is not None:
        counted |= {group: scored * (batch.group == number).unsqueeze(1) for number, group in enumerate(batch.groups)}
    return {group: weights / weights.sum() for group, weights in counted.items() if weights.any()}


def _stack_tensors(batches: Sequence[Batch], longest: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return one batch per member as stacked tensors, padded with zeros to `longest`, and the axes to map over."""
    first = batches[0]
    names = [name for name in ("inputs", "targets", "answers", "weights", "group") if getattr(first, name) is not None]
    tensors: dict[str, Any] = {name: _stacked([getattr(one, name) for one in batches], longest) for name in names}
    axes: dict[str, Any] = dict.fromkeys(names, 0)
    shared = first.positions.ndim == 1
    tensors["positions"] = first.positions if shared else _stacked([one.positions for one in batches], longest)
    axes["positions"] = None if shared else 0
    tensors["rivals"] = {name: _stacked([one.rivals[name] for one in batches], longest) for name in first.rivals}
    axes["rivals"] = dict.fromkeys(first.rivals, 0)
    return tensors, axes


def _stack_shares(
    shares: Sequence[Mapping[str, Float[Tensor, "_ scored"]]], longest: int
) -> dict[str, Float[Tensor, "member longest scored"]]:
    """Return the shares of all members for each group; a member without sequences of a group has shares of 0."""
    groups = dict.fromkeys(group for each in shares for group in each)
    nothing = [torch.zeros_like(each["all"]) for each in shares]
    return {
        group: _stacked([each.get(group, none) for each, none in zip(shares, nothing, strict=True)], longest)
        for group in groups
    }


def _stacked(values: Sequence[Shaped[Tensor, "_ ..."]], longest: int) -> Shaped[Tensor, "member longest ..."]:
    nothing = values[0].new_zeros(longest, *values[0].shape[1:])
    return pad_sequence([*values, nothing], batch_first=True)[:-1]
