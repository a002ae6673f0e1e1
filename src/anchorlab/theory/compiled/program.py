"""Programs: what each head and feed-forward layer of a transformer reads and writes, in named blocks of its stream."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.tasks import Task

ONE, POSITION, ANSWER = "one", "position", "answer"
"""Blocks that every program has: the constant 1, the one-hot position, and what the output map reads."""


@dataclass(frozen=True, eq=False)
class Match:
    """A summand of a head's scores: `x_query[block] table x_key[block]`.

    The summands of a head must together score the key that it looks for at least 1 above every other key.
    """

    query: str
    key: str
    table: Float[Tensor, "query key"]


@dataclass(frozen=True, eq=False)
class Move:
    """What a head takes from one block at the key and adds to another at the query: `x_key[block] table`."""

    source: str
    target: str
    table: Float[Tensor, "source target"]


@dataclass(frozen=True, eq=False)
class Head:
    """A head of a program.

    Fields
        layer: the layer, from 0
        role: what it does, in words
        job: the name of its contribution; units with the same job can replace each other. None: it contributes nothing
        matches, moves: where it attends and what it moves
        cancels: whether it is one of a pair whose outputs add up to zero
    """

    layer: int
    role: str
    job: str | None
    matches: tuple[Match, ...]
    moves: tuple[Move, ...]
    cancels: bool = False


@dataclass(frozen=True, eq=False)
class FeedForward:
    """The feed-forward layer of a layer: `relu(sum of x[block] reads) writes`; other fields as for `Head`."""

    layer: int
    role: str
    job: str | None
    reads: Mapping[str, Float[Tensor, "_ neuron"]]
    writes: Mapping[str, Float[Tensor, "neuron _"]]

    @property
    def neurons(self) -> int:
        """The number of neurons."""
        return int(next(iter(self.writes.values())).shape[0])


@dataclass(frozen=True, eq=False)
class Program:
    """A transformer in words: the blocks of its stream, and the units that read and write them.

    Fields
        task: the task that it solves
        blocks: the size of each block, `ANSWER` among them; `ONE` and `POSITION` are left out
        tokens: the embedding of tokens, by block
        outputs: the map from the block `ANSWER` to the outputs, with entries 0 and 1
        units: heads and feed-forward layers, by layer; the last is the answer head
        doubled: the index in `units` of a head that may occur twice, as only the largest value that it writes matters
    """

    task: Task
    blocks: Mapping[str, int]
    tokens: Mapping[str, Float[Tensor, "token _"]]
    outputs: Float[Tensor, "answer output"]
    units: tuple[Head | FeedForward, ...]
    doubled: int = 0

    @property
    def sizes(self) -> dict[str, int]:
        """The size of each block of the stream, in order."""
        return {ONE: 1, POSITION: self.task.shape.length, **self.blocks}

    @property
    def places(self) -> dict[str, Float[Tensor, "position _"]]:
        """The embedding of positions, by block."""
        length = self.task.shape.length
        return {ONE: torch.ones(length, 1, dtype=torch.float64), POSITION: identity(length)}

    @property
    def layers(self) -> int:
        """The number of layers."""
        return 1 + max(unit.layer for unit in self.units)

    def heads(self, layer: int) -> list[Head]:
        """Return the heads of a layer, in order."""
        return [unit for unit in self.units if isinstance(unit, Head) and unit.layer == layer]

    def feed_forward(self, layer: int) -> FeedForward | None:
        """Return the feed-forward layer of a layer, or None."""
        return next((unit for unit in self.units if isinstance(unit, FeedForward) and unit.layer == layer), None)


def identity(size: int) -> Float[Tensor, "row column"]:
    """Return the identity matrix in float64, in which programs are written."""
    return torch.eye(size, dtype=torch.float64)


def one_hot(tokens: Sequence[int], size: int) -> Float[Tensor, "row token"]:
    """Return a matrix with one row for each of `tokens`: 1 in the token's column, 0 elsewhere."""
    return identity(size)[list(tokens)]


def before(length: int, *distances: int) -> Match:
    """Return the summand that scores 1 at the positions at these distances before the query."""
    shifted = [identity(length).roll(-distance, dims=1).tril() for distance in distances]
    return Match(POSITION, POSITION, torch.stack(shifted).sum(dim=0))


def at_keys(block: str, scores: Sequence[float] | Float[Tensor, "key"]) -> Match:
    """Return the summand that scores each key by its own `block`, whatever the query."""
    return Match(ONE, block, torch.as_tensor(scores, dtype=torch.float64).unsqueeze(0))


def not_first(length: int) -> Match:
    """Return the summand -1 at position 0, where a head that looks one back finds the token of position 0 itself."""
    return at_keys(POSITION, [-1.0] + [0.0] * (length - 1))
