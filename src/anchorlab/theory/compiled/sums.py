"""Programs that add what anchors stand for to a key: composite, synonym, multi-anchor."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.tasks import AnchorFunction
from anchorlab.theory.compiled.program import ANSWER, ONE, FeedForward, Head, Move, Program, at_keys, before, one_hot

_UNIT = 64.0  # numbers are kept in this unit, so that all coordinates of the stream are of the same size


def addition(task: AnchorFunction) -> Program:
    """Return the program of `x A B -> B(A(x))` or `A x -> A(x)` with operations such as +5.

    Every token has a number: an item its own, an anchor what it adds. In layer 0 each position adds up the numbers of
    the one or two tokens before it, and the feed-forward layer turns this sum and its own number into a token. In layer
    1 the last position copies that token from the end of the pattern, which it knows by the anchors there and before.
    """
    length, size, (first, last) = task.placement.length, task.vocabulary.size, task.vocabulary.items
    pattern = next(iter(task.rules.values())).pattern.text
    if pattern not in _PATTERNS:
        raise SpecError("rules", f"`{pattern}` is no sum that is compiled", f"use {' or '.join(_PATTERNS)}")
    back, own = _PATTERNS[pattern]
    added = {anchor: _amount(task, anchor) for anchor in task.vocabulary.anchors}
    reach = [min(0, *added.values()) * len(back), max(0, *added.values()) * len(back)]
    answers = range(first + reach[0], last + reach[1] + 1)
    middle = (answers[0] + answers[-1]) // 2
    numbers = {**{item: item - middle for item in range(first, last + 1)}, **added}
    number, anchor = torch.zeros(2, size, 1, dtype=torch.float64)
    number[list(numbers), 0] = torch.tensor([value / _UNIT for value in numbers.values()], dtype=torch.float64)
    anchor[list(added)] = 1
    count = torch.tensor([[float(len(back))]], dtype=torch.float64)
    reads, writes = _to_tokens([answer - middle for answer in answers])
    one = torch.ones(1, reads.shape[1], dtype=torch.float64)
    return Program(
        task,
        blocks={"number": 1, "anchor": 1, "numbers": 1, "anchors": 1, "sum": len(answers), ANSWER: len(answers)},
        tokens={"number": number, "anchor": anchor},
        outputs=one_hot(answers, size),
        units=(
            Head(
                0,
                f"each position adds up the numbers of the {'token' if len(back) == 1 else 'two tokens'} before it",
                "collect",
                (before(length, *back),),
                (Move("number", "numbers", count), Move("anchor", "anchors", count)),
            ),
            FeedForward(
                0,
                "each position turns the sum of its own number and the collected ones into a token",
                "add",
                {"number": _UNIT * one, "numbers": _UNIT * one, ONE: reads},
                {"sum": writes},
            ),
            Head(
                1,
                "the last position finds the end of the pattern and copies the sum there",
                "answer",
                (at_keys("anchor", [own]), at_keys("anchors", [1.0])),
                (Move("sum", ANSWER, torch.eye(len(answers), dtype=torch.float64)),),
            ),
        ),
        doubled=2,
    )


_PATTERNS = {"x A B": ((1, 2), 2.0), "A x": ((1,), -1.0)}
"""By pattern: the distances of the tokens before its end; and a weight for an anchor at a position with which, plus the
anchors collected there, the end of the pattern scores at least 1 above every other position."""


def _amount(task: AnchorFunction, anchor: int) -> int:
    """Return what an anchor's operation adds. Errors: `SpecError` for an operation that is no addition."""
    items = np.arange(task.vocabulary.items[0], task.vocabulary.items[1] + 1)
    found = set((task.operations[anchor](items) - items).tolist())
    if len(found) > 1:
        raise SpecError(f"operations.{anchor}", "is no addition", "use operations such as +5")
    return int(found.pop())


def _to_tokens(
    values: list[int],
) -> tuple[Float[Tensor, "one neuron"], Float[Tensor, "neuron value"]]:
    """Return the thresholds and the output map of neurons `relu(y - k)` that write 1 for the value that y is.

    `relu(y - v + 1) - 2 relu(y - v) + relu(y - v - 1)` is 1 at y = v and 0 at every other whole number. `values` are
    consecutive.
    """
    thresholds = torch.arange(values[0] - 1, values[-1] + 2, dtype=torch.float64)
    writes = torch.zeros(len(thresholds), len(values), dtype=torch.float64)
    for place in range(len(values)):
        writes[place : place + 3, place] = torch.tensor([1.0, -2.0, 1.0], dtype=torch.float64)
    return -thresholds.unsqueeze(0), writes
