"""Child seeds: every random stream gets its own seed, hashed from a member's seed and the stream's name."""

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def child_seed(seed: int, *path: str | int) -> int:
    """Return the seed of the stream named `path` below `seed`, an integer in [0, 2^63).

    `path` is the stream's name in parts, such as `"eval", "test"`. Different paths give independent streams; the same
    path gives the same stream on any machine. Seeds are hashed, never added: `seed + 1` may be another member's seed.

    >>> child_seed(0, "data") == child_seed(0, "data")
    True
    """
    text = "/".join([str(seed), *(f"{type(part).__name__}:{part}" for part in path)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def generator(seed: int, *path: str | int) -> np.random.Generator:
    """Return a numpy generator seeded by `child_seed(seed, *path)`, for drawing data."""
    # SFC64 is numpy's fastest bit generator
    return np.random.Generator(np.random.SFC64(child_seed(seed, *path)))


def torch_generator(seed: int, *path: str | int) -> "torch.Generator":
    """Return a torch generator on the CPU seeded by `child_seed(seed, *path)`, for drawing initial weights."""
    import torch

    return torch.Generator().manual_seed(child_seed(seed, *path))
