"""Feeds: the training sequences of all members, in memory, batch by batch without any loader."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from anchorlab.rng import child_seed, torch_generator
from anchorlab.tasks import Batch, Task
from anchorlab.training.recipe import FixedSample, Members, Recipe

STREAM_DRAW = 8192
"""Sequences drawn at once for a stream; part of the meaning of a seed, so it never changes."""


@dataclass(frozen=True)
class MemberBatches:
    """One batch for each member, stacked: every tensor of `Batch` with a leading member axis.

    `positions` keeps no member axis where all sequences are scored at the same places (`[scored]`).
    """

    inputs: Tensor
    targets: Tensor
    positions: Tensor
    weights: Tensor | None

    @property
    def shared_positions(self) -> bool:
        """Whether all members and sequences are scored at the same positions."""
        return self.positions.ndim == 1

    def take(self, *index: Tensor | slice) -> "MemberBatches":
        """Some members and rows, by an index into the first two axes."""
        return MemberBatches(
            inputs=self.inputs[index],
            targets=self.targets[index],
            positions=self.positions if self.shared_positions else self.positions[index],
            weights=None if self.weights is None else self.weights[index],
        )


class FixedSampleFeed:
    """A fixed sample per member; the order of an epoch depends on the member's order seed and the epoch alone.

    Members with the same data are fed from one copy. `first` holds each member's first sequences, which evaluation
    measures.
    """

    def __init__(self, task: Task, recipe: Recipe, members: Members, device: torch.device, dtype: torch.dtype) -> None:
        assert isinstance(recipe.data, FixedSample)
        self.sizes = members.data_size or (recipe.data.size,) * len(members)
        self.batch = recipe.batch
        seeds = [members.stream("data", index) for index in range(len(members))]
        wanted = list(zip(seeds, self.sizes, strict=True))
        samples = {one: index for index, one in enumerate(dict.fromkeys(wanted))}
        first: list[Batch] = []

        def draw() -> Iterable[Batch]:
            for seed, size in samples:
                batch = task.sample("train", size, child_seed(seed, "train"))
                first.append(first_rows(batch, recipe.evaluation.size))
                yield batch

        self._data = stack(draw(), len(samples), max(self.sizes), device, dtype)
        self.first = [first[samples[one]] for one in wanted]
        self._order_seeds = [members.stream("order", index) for index in range(len(members))]
        self._epochs: list[tuple[int, Tensor]] = [(-1, torch.empty(0))] * len(members)
        self._rows = torch.tensor([samples[one] for one in wanted], device=device).unsqueeze(1)
        self._device = device

    def at(self, step: int) -> MemberBatches:
        """The batches of optimiser step `step`."""
        index = torch.stack([self._indices(member, step) for member in range(len(self.sizes))]).to(self._device)
        return self._data.take(self._rows, index)

    def _indices(self, member: int, step: int) -> Tensor:
        size = self.sizes[member]
        epoch, place = divmod(step, -(-size // self.batch))
        if self._epochs[member][0] != epoch:
            generator = torch_generator(self._order_seeds[member], "order", epoch)
            self._epochs[member] = (epoch, torch.randperm(size, generator=generator))
        return self._epochs[member][1][place * self.batch : (place + 1) * self.batch]


class StreamFeed:
    """Fresh sequences for every step, drawn in blocks; a block depends on the member's data seed and its number alone.

    Members with the same data seed are fed from one copy.
    """

    def __init__(self, task: Task, recipe: Recipe, members: Members, device: torch.device, dtype: torch.dtype) -> None:
        self.task, self.batch = task, recipe.batch
        seeds = [members.stream("data", index) for index in range(len(members))]
        self._seeds = {seed: index for index, seed in enumerate(dict.fromkeys(seeds))}
        self._rows = torch.tensor([self._seeds[seed] for seed in seeds], device=device)
        self._steps = max(1, STREAM_DRAW // recipe.batch)
        self._block = -1
        self._data: MemberBatches | None = None
        self._device, self._dtype = device, dtype

    def at(self, step: int) -> MemberBatches:
        """The batches of optimiser step `step`."""
        block, place = divmod(step, self._steps)
        if self._data is None or block != self._block:
            self._data = None  # before the next is drawn, so that two blocks never stand side by side
            size = self._steps * self.batch
            drawn = (self.task.sample("train", size, child_seed(seed, "stream", block)) for seed in self._seeds)
            self._data, self._block = stack(drawn, len(self._seeds), size, self._device, self._dtype), block
        batches = self._data.take(slice(None), slice(place * self.batch, (place + 1) * self.batch))
        return batches if len(self._seeds) == len(self._rows) else batches.take(self._rows)


Feed = FixedSampleFeed | StreamFeed


def make_feed(task: Task, recipe: Recipe, members: Members, device: torch.device, dtype: torch.dtype) -> Feed:
    """The feed that a recipe's data asks for."""
    kind = FixedSampleFeed if isinstance(recipe.data, FixedSample) else StreamFeed
    return kind(task, recipe, members, device, dtype)


def map_batch(batch: Batch, change: Callable[[Tensor], Tensor]) -> Batch:
    """A batch with every tensor changed alike; latents, which nothing above the tasks reads, are left out."""
    return replace(
        batch,
        inputs=change(batch.inputs),
        targets=change(batch.targets),
        answers=change(batch.answers),
        positions=change(batch.positions),
        weights=None if batch.weights is None else change(batch.weights),
        group=None if batch.group is None else change(batch.group),
        latents={},
        rivals={name: change(value) for name, value in batch.rivals.items()},
    )


def first_rows(batch: Batch, size: int) -> Batch:
    """A copy of a batch's first sequences, which keeps nothing of the rest alive."""
    return map_batch(
        batch, lambda value: value if value is batch.positions and value.ndim == 1 else value[:size].clone()
    )


def stack(batches: Iterable[Batch], count: int, size: int, device: torch.device, dtype: torch.dtype) -> MemberBatches:
    """Copies `count` batches of at most `size` sequences, as they come, into one stack on a device.

    Rows that a shorter batch leaves free hold nothing of meaning.
    """
    stacked: dict[str, Tensor] = {}
    for index, batch in enumerate(batches):
        values = {"inputs": batch.inputs, "targets": batch.targets, "weights": batch.weights}
        if batch.positions.ndim == 1:
            stacked["positions"] = batch.positions.to(device)
        else:
            values["positions"] = batch.positions
        for name, value in values.items():
            if value is None:
                continue
            if name not in stacked:
                kind = dtype if value.is_floating_point() else value.dtype
                stacked[name] = torch.zeros(count, size, *value.shape[1:], device=device, dtype=kind)
            stacked[name][index, : len(value)] = value
    return MemberBatches(stacked["inputs"], stacked["targets"], stacked["positions"], stacked.get("weights"))
