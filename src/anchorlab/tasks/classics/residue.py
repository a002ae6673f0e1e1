"""Separate sequences by a number computed from their tokens, so that a split can be decided from the inputs alone."""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Int
from numpy.random import Generator
from torch import Tensor

_PRIME = 2_147_483_647  # products of two residues fit in 64 bits
_BASE = 1_103_515_245

TEST_ONE_IN = 5
"""One sequence in so many belongs to the test split."""


def side(tokens: Int[Tensor, "batch position"]) -> Int[Tensor, "batch"]:
    """Return 1 for the test split and 0 for training: a polynomial hash of the tokens decides, for one in five test."""
    total = torch.zeros(len(tokens), dtype=torch.int64)
    for column in tokens.cpu().unbind(dim=1):
        total = (total * _BASE + column + 1) % _PRIME
    return (total % TEST_ONE_IN == 0).long()


def draw_side(
    random: Generator, n: int, wanted: int, draw: Callable[[Generator, int], Int[np.ndarray, "batch position"]]
) -> Int[Tensor, "batch position"]:
    """Draw sequences until `n` of them belong to the split `wanted`."""
    found = [torch.from_numpy(draw(random, 0))]
    count = 0
    while count < n:
        drawn = torch.from_numpy(draw(random, max(64, 2 * (n - count))))
        found.append(drawn[side(drawn) == wanted])
        count += len(found[-1])
    return torch.cat(found)[:n]
