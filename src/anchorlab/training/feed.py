"""Feeds: provide all members' training batches, cut from sequences that are kept on the device."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Shaped
from torch import Tensor

from anchorlab.rng import child_seed, torch_generator
from anchorlab.tasks import Batch, Task
from anchorlab.training.members import Members
from anchorlab.training.recipe import FixedSample, Recipe

FIRST_BLOCK = 64
"""The sequences in the first block of a nested sample. Never change it: a seed's sequences depend on it."""

STREAM_DRAW = 8192
"""The largest number of sequences drawn at once for a stream. Never change it: a seed's sequences depend on it."""


@dataclass(frozen=True)
class MemberBatches:
    """One batch per member: the tensors of `Batch`, stacked.

    `positions` is `[scored]` if all sequences are scored at the same positions, else `[member batch scored]`.
    `targets` ends with an axis `output` for tasks with distributions or vectors as targets.
    """

    inputs: Shaped[Tensor, "member batch position *feature"]
    targets: Shaped[Tensor, "member batch scored *output"]
    positions: Shaped[Tensor, "*member_batch scored"]
    weights: Shaped[Tensor, "member batch scored"] | None

    @property
    def shared_positions(self) -> bool:
        """Whether all members and sequences are scored at the same positions."""
        return self.positions.ndim == 1

    def take(self, *index: Shaped[Tensor, "..."] | slice) -> "MemberBatches":
        """Return selected members and sequences, given an index for the first axis or for the first two."""
        return MemberBatches(
            inputs=self.inputs[index],
            targets=self.targets[index],
            positions=self.positions if self.shared_positions else self.positions[index],
            weights=None if self.weights is None else self.weights[index],
        )


class FixedSampleFeed:
    """Batches of a fixed sample per member, reshuffled every epoch with the member's order seed.

    Members with the same data share one copy. `first` holds each member's first sequences, for evaluation.
    """

    def __init__(self, task: Task, recipe: Recipe, members: Members, device: torch.device, dtype: torch.dtype) -> None:
        assert isinstance(recipe.data, FixedSample)
        self.sizes = members.data_size or (recipe.data.size,) * len(members)
        in_blocks = recipe.data.nested and not task.nested
        self.batch = recipe.batch
        seeds = [members.stream("data", index) for index in range(len(members))]
        # members with the same data seed and size share one sample, for example if `hold` fixes the data
        wanted = list(zip(seeds, self.sizes, strict=True))
        samples = {one: index for index, one in enumerate(dict.fromkeys(wanted))}
        first: list[Batch] = []

        def draw() -> Iterable[Batch]:
            for seed, size in samples:
                whole = child_seed(seed, "train")
                batch = nested_sample(task, size, whole) if in_blocks else task.sample("train", size, whole)
                first.append(first_rows(batch, recipe.evaluation.size))
                yield task.for_training(batch)

        self._data = stack(draw(), len(samples), max(self.sizes), device, dtype)
        self.first = [first[samples[one]] for one in wanted]
        self._order_seeds = [members.stream("order", index) for index in range(len(members))]
        self._epochs = [-1] * len(members)
        self._order = torch.zeros(len(members), max(self.sizes), dtype=torch.int64, device=device)
        self._rows = torch.tensor([samples[one] for one in wanted], device=device).unsqueeze(1)

    def at(self, step: int) -> MemberBatches:
        """Return the batches of an optimiser step, counted from 0."""
        # usually all members read the same slice of their own orders, and one slice of the table suffices
        places = [self._place(member, step) for member in range(len(self.sizes))]
        if all(place == places[0] for place in places):
            index = self._order[:, places[0]]
        else:
            index = torch.stack([order[place] for order, place in zip(self._order, places, strict=True)])
        return self._data.take(self._rows, index)

    def _place(self, member: int, step: int) -> slice:
        """Return the slice of a member's order that a step reads, after drawing a new order if an epoch begins."""
        size = self.sizes[member]
        # an epoch has ceil(size / batch) steps, so members with samples of different sizes begin epochs at other steps
        epoch, place = divmod(step, -(-size // self.batch))
        if self._epochs[member] != epoch:
            generator = torch_generator(self._order_seeds[member], "order", epoch)
            drawn = torch.randperm(size, generator=generator)
            if self._order.is_cuda:
                drawn = drawn.pin_memory()  # so that the host does not wait for the copy
            self._order[member, :size].copy_(drawn, non_blocking=True)
            self._epochs[member] = epoch
        return slice(place * self.batch, min(size, (place + 1) * self.batch))


def nested_sample(task: Task, size: int, seed: int) -> Batch:
    """Draw training sequences so that a smaller sample is the beginning of a larger one with the same seed.

    They are drawn in blocks, each with its own child seed: first 64 sequences, then in each block as many as in all
    earlier blocks together. A task with exact `shares` of groups therefore rounds their counts in each block.
    """
    blocks: list[Batch] = []
    while (drawn := sum(map(len, blocks))) < size:
        blocks.append(task.sample("train", drawn or FIRST_BLOCK, child_seed(seed, "block", len(blocks))))
    first, *others = blocks
    shared = first.positions if first.positions.ndim == 1 else None
    whole = map_batch(first, lambda *values: shared if values[0] is shared else torch.cat(values), *others)
    return first_rows(whole, size)


class StreamFeed:
    """New sequences for every step, drawn up to `STREAM_DRAW` at a time, or one batch if that is larger.

    Each draw is seeded by the member's data seed and the draw's number, and provides `steps_per_draw` batches. Members
    with the same data seed share one copy.
    """

    def __init__(self, task: Task, recipe: Recipe, members: Members, device: torch.device, dtype: torch.dtype) -> None:
        self.task, self.batch = task, recipe.batch
        seeds = [members.stream("data", index) for index in range(len(members))]
        self._seeds = {seed: index for index, seed in enumerate(dict.fromkeys(seeds))}
        self._rows = torch.tensor([self._seeds[seed] for seed in seeds], device=device)
        self._within = torch.arange(recipe.batch, device=device)
        self.steps_per_draw = max(1, STREAM_DRAW // recipe.batch)
        self._draw = -1
        self._data: MemberBatches | None = None
        self._device, self._dtype = device, dtype

    def at(self, step: int) -> MemberBatches:
        """Return the batches of an optimiser step, counted from 0."""
        number, place = divmod(step, self.steps_per_draw)
        if self._data is None or number != self._draw:
            self._data = None  # free the last draw before the next one
            size = self.steps_per_draw * self.batch
            seeds = [child_seed(seed, "stream", number) for seed in self._seeds]
            drawn = (self.task.for_training(self.task.sample("train", size, seed)) for seed in seeds)
            self._data, self._draw = stack(drawn, len(self._seeds), size, self._device, self._dtype), number
        # the copy has the same memory layout whether members share data or not: the layout can change last bits
        return self._data.take(self._rows.unsqueeze(1), self._within + place * self.batch)


Feed = FixedSampleFeed | StreamFeed


def make_feed(task: Task, recipe: Recipe, members: Members, device: torch.device, dtype: torch.dtype) -> Feed:
    """Return the feed for the recipe's data: a fixed sample or a stream."""
    kind = FixedSampleFeed if isinstance(recipe.data, FixedSample) else StreamFeed
    return kind(task, recipe, members, device, dtype)


def map_batch(batch: Batch, change: Callable[..., Shaped[Tensor, "..."]], *others: Batch) -> Batch:
    """Return a batch whose every tensor is `change` of that tensor in this batch and in each of `others`.

    Latents are dropped, since training does not use them.
    """

    every = (batch, *others)
    tensors: dict[str, Any] = {
        name: None if getattr(batch, name) is None else change(*(getattr(one, name) for one in every))
        for name in ("inputs", "targets", "answers", "positions", "weights", "group")
    }
    rivals = {name: change(*(one.rivals[name] for one in every)) for name in batch.rivals}
    return replace(batch, **tensors, latents={}, rivals=rivals)


def first_rows(batch: Batch, size: int) -> Batch:
    """Return a copy of a batch's first `size` sequences, in separate memory."""
    return map_batch(
        batch, lambda value: value if value is batch.positions and value.ndim == 1 else value[:size].clone()
    )


def stack(batches: Iterable[Batch], count: int, size: int, device: torch.device, dtype: torch.dtype) -> MemberBatches:
    """Stack `count` batches of at most `size` sequences on a device; shorter batches are padded with zeros.

    The batches are consumed one at a time. Floating-point tensors are converted to `dtype`.
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
