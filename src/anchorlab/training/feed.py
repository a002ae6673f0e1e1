"""Feeds: the training sequences of all members, in memory, batch by batch without any loader."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.rng import child_seed, torch_generator
from anchorlab.tasks import Batch, Task
from anchorlab.training.recipe import FixedSample, Members, Recipe

_STREAM_BLOCK = 8192  # sequences drawn at once for a stream; part of the meaning of a seed, so it never changes


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


class FixedSampleFeed:
    """A fixed sample per member; the order of an epoch depends on the member's order seed and the epoch alone."""

    def __init__(self, task: Task, recipe: Recipe, members: Members, device: torch.device, dtype: torch.dtype) -> None:
        assert isinstance(recipe.data, FixedSample)
        self.sizes = members.data_size or (recipe.data.size,) * len(members)
        self.batch = recipe.batch
        if len(set(self.sizes)) > 1 and any(size % self.batch for size in self.sizes):
            raise SpecError("members.data_size", "members of different sizes need whole batches",
                            f"use multiples of the batch, {self.batch}")
        drawn = [
            task.sample("train", size, child_seed(members.stream("data", index), "train"))
            for index, size in enumerate(self.sizes)
        ]
        self.samples = drawn
        longest = max(self.sizes)
        self._data = _stack([_pad(batch, longest) for batch in drawn], device, dtype)
        self._order_seeds = [members.stream("order", index) for index in range(len(members))]
        self._epochs: list[tuple[int, Tensor]] = [(-1, torch.empty(0))] * len(members)
        self._rows = torch.arange(len(members), device=device).unsqueeze(1)
        self._device = device

    def at(self, step: int) -> MemberBatches:
        """The batches of optimiser step `step`."""
        index = torch.stack([self._indices(member, step) for member in range(len(self.sizes))]).to(self._device)
        data, rows = self._data, self._rows
        return MemberBatches(
            inputs=data.inputs[rows, index],
            targets=data.targets[rows, index],
            positions=data.positions if data.shared_positions else data.positions[rows, index],
            weights=None if data.weights is None else data.weights[rows, index],
        )

    def _indices(self, member: int, step: int) -> Tensor:
        size = self.sizes[member]
        epoch, place = divmod(step, -(-size // self.batch))
        if self._epochs[member][0] != epoch:
            generator = torch_generator(self._order_seeds[member], "order", epoch)
            self._epochs[member] = (epoch, torch.randperm(size, generator=generator))
        return self._epochs[member][1][place * self.batch : (place + 1) * self.batch]


class StreamFeed:
    """Fresh sequences for every step, drawn in blocks; a block depends on the member's data seed and its number alone."""

    def __init__(self, task: Task, recipe: Recipe, members: Members, device: torch.device, dtype: torch.dtype) -> None:
        self.task, self.batch = task, recipe.batch
        self._seeds = [members.stream("data", index) for index in range(len(members))]
        self._steps = max(1, _STREAM_BLOCK // recipe.batch)
        self._block = -1
        self._data: MemberBatches | None = None
        self._device, self._dtype = device, dtype

    def at(self, step: int) -> MemberBatches:
        """The batches of optimiser step `step`."""
        block, place = divmod(step, self._steps)
        if block != self._block:
            size = self._steps * self.batch
            drawn = [self.task.sample("train", size, child_seed(seed, "stream", block)) for seed in self._seeds]
            self._data, self._block = _stack(drawn, self._device, self._dtype), block
        assert self._data is not None
        data, rows = self._data, slice(place * self.batch, (place + 1) * self.batch)
        return MemberBatches(
            inputs=data.inputs[:, rows],
            targets=data.targets[:, rows],
            positions=data.positions if data.shared_positions else data.positions[:, rows],
            weights=None if data.weights is None else data.weights[:, rows],
        )


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
    )


def _pad(batch: Batch, size: int) -> Batch:
    """Repeats the first rows up to `size`; the order of an epoch never reaches them."""
    missing = size - len(batch)
    if not missing:
        return batch
    rows = torch.arange(size) % len(batch)
    return map_batch(batch, lambda value: value if value is batch.positions and value.ndim == 1 else value[rows])


def _stack(batches: list[Batch], device: torch.device, dtype: torch.dtype) -> MemberBatches:
    def together(values: list[Tensor]) -> Tensor:
        stacked = torch.stack(values)
        return stacked.to(device, dtype if stacked.is_floating_point() else stacked.dtype)

    first = batches[0]
    return MemberBatches(
        inputs=together([batch.inputs for batch in batches]),
        targets=together([batch.targets for batch in batches]),
        positions=first.positions.to(device) if first.positions.ndim == 1 else together([b.positions for b in batches]),
        weights=None if first.weights is None else together([b.weights for b in batches if b.weights is not None]),
    )
