"""Chains of pairs, which the retrieval tasks share: how they stand in a sequence, and how they are followed."""

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from anchorlab.errors import SpecError


def layout(order: Int[np.ndarray, "batch step chain"]) -> Int[np.ndarray, "batch position"]:
    """The symbol at each position, as its index among a sequence's symbols `[chain step]`.

    For step s = D down to 1 the pairs (x_{s-1}, x_s), then the queries x_0; `order` is the chain that stands at each
    place, for the queries (step 0) and the pairs of steps 1..D.
    """
    rows, steps, chains = len(order), order.shape[1] - 1, order.shape[2]
    index = np.empty((rows, chains * (2 * steps + 1)), dtype=np.int64)
    pairs = index[:, : 2 * chains * steps].reshape(rows, steps, chains, 2)
    descending = np.arange(steps, 0, -1)
    pairs[..., 1] = order[:, descending] * (steps + 1) + descending[:, None]
    pairs[..., 0] = pairs[..., 1] - 1
    index[:, 2 * chains * steps :] = order[:, 0] * (steps + 1)
    return index


def follow(
    symbols: Tensor, queries: Tensor, steps: int
) -> tuple[Int[Tensor, "step batch query"], Bool[Tensor, "batch query"]]:
    """Where the second member of the pair matched at each step stands, and whether each match was the only one.

    Symbols match where all their features are equal.

    Shapes
        symbols: `[batch position feature]`, the pairs alone
        queries: `[batch query feature]`
    """
    first, current = symbols[:, 0::2], queries
    found, known = [], torch.ones(current.shape[:2], dtype=torch.bool)
    for _ in range(steps):
        matches = (current[:, :, None, :] == first[:, None, :, :]).all(dim=-1)
        known &= matches.sum(dim=-1) == 1
        at = matches.to(torch.uint8).argmax(dim=-1) * 2 + 1
        found.append(at)
        current = symbols.gather(1, at[..., None].expand(-1, -1, symbols.shape[-1]))
    return torch.stack(found), known


def check_asked_steps(asked: tuple[int, ...], steps: int, curriculum: bool) -> None:
    """Refuses steps that are not some of 1..D in order, or that are named without a curriculum, with a `SpecError`."""
    if list(asked) != sorted({*asked} & {*range(1, steps + 1)}):
        problem = f"{list(asked)} are not some of the steps 1 to {steps}, in order"
        raise SpecError("asked_steps", problem, "give each once, such as 1,3, or none for all")
    if asked and not curriculum:
        raise SpecError("asked_steps", "name a curriculum, and implicit_curriculum is off", "leave one of the two out")


def asked_steps(asked: tuple[int, ...], steps: int, curriculum: bool) -> tuple[int, ...]:
    """The steps that are asked for: those named, else all of them under a curriculum, else the last."""
    every = tuple(range(1, steps + 1))
    return asked or (every if curriculum else every[-1:])


def letters(index: int) -> str:
    """A, B, .. Z, AA, AB ..: the name of the symbol with this index from 0."""
    name = ""
    while index >= 0:
        name = chr(ord("A") + index % 26) + name
        index = index // 26 - 1
    return name
