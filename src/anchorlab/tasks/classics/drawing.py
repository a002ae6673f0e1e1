"""Draw rows of distinct tokens, and sequences of one split, where a hash of the tokens decides the split."""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy.random import Generator
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.rng import generator
from anchorlab.tasks.task import Task

TEST_ONE_IN = 5
"""The test split has one sequence in five."""

_PRIME = 2_147_483_647  # products of two residues fit in 64 bits
_BASE = 1_103_515_245
_LEAST_DRAWN = 64
_TOO_RARE = 20_000  # a split with less than one sequence in this many is refused
_NUMBERS_AT_ONCE = 2**22


def side(tokens: Int[Tensor, "batch position"]) -> Int[Tensor, "batch"]:
    """Return 1 for the test split and 0 for training, by a polynomial hash of the tokens."""
    total = torch.zeros(len(tokens), dtype=torch.int64)
    for column in tokens.cpu().unbind(dim=1):
        total = (total * _BASE + column + 1) % _PRIME
    return (total % TEST_ONE_IN == 0).long()


def draw_split(
    task: Task,
    split: str,
    n: int,
    seed: int,
    draw: Callable[[Generator, int], Int[np.ndarray, "batch position"]],
    split_of: Callable[[Int[Tensor, "batch position"]], Int[Tensor, "batch"]] = side,
) -> Int[Tensor, "batch position"]:
    """Draw sequences of a task until `n` of them belong to a split; `split_of` gives the index of each one's split.

    Errors: as `Task.check_draw`; `SpecError` if nearly none belongs to the split.
    """
    task.check_draw(split, n, seed)
    random, wanted = generator(seed, "sequences", split), task.splits.index(split)
    found, drawn, count = [torch.from_numpy(draw(random, 0))], 0, 0
    while count < n:
        # as long as none is found, twice as many each time
        several = torch.from_numpy(draw(random, max(_LEAST_DRAWN, 2 * (n - count), 0 if count else drawn)))
        found.append(several[split_of(several) == wanted])
        drawn, count = drawn + len(several), count + len(found[-1])
        if max(count, 1) * _TOO_RARE < drawn:
            problem = f"{count} of {drawn:,} drawn sequences belong to the split"
            raise SpecError("split", problem, "choose longer sequences or other limits")
    return torch.cat(found)[:n]


def all_different(tokens: Int[Tensor, "batch token"]) -> Bool[Tensor, "batch"]:
    """Return whether each row holds no token twice."""
    return tokens.sort(dim=1).values.diff(dim=1).ne(0).all(dim=1)


def distinct(random: Generator, n: int, count: int, size: int) -> Int[np.ndarray, "batch token"]:
    """Draw `n` rows of `count` different numbers below `size`, in random order."""
    rows = np.empty((n, count), dtype=np.int64)
    step = max(1, _NUMBERS_AT_ONCE // size)
    for start in range(0, n, step):
        numbers = np.tile(np.arange(size), (min(step, n - start), 1))
        rows[start : start + step] = random.permuted(numbers, axis=1)[:, :count]
    return rows
