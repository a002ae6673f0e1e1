"""Programs that solve tasks: copy the token that an anchor or a note points to, or add up the numbers of anchors."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.tasks import AnchorFunction, Task, task
from anchorlab.theory.compiled import FeedForward, Head, Match, Move, Program, chains
from anchorlab.theory.compiled.program import ANSWER, ONE, POSITION, at_keys, before, identity, not_first, one_hot

_UNIT = 64.0  # numbers are kept in this unit, so that all coordinates of the stream are of the same size


def next_token(task: AnchorFunction) -> Program:
    """Return the program of `anchor/identity`: mark the position after the anchor, read the token there.

    position   43  33   3  20  89        layer 0   each position looks one back and notes an anchor
    after                    1           layer 1   the last position looks for the note and copies the token
    """
    (first, last), size, length = task.vocabulary.items, task.vocabulary.size, task.placement.length
    tokens = [*range(first, last + 1), *task.vocabulary.anchors]
    items = last - first + 1
    is_anchor = torch.tensor([[float(token > last or token < first)] for token in tokens], dtype=torch.float64)
    return Program(
        task,
        blocks={"token": len(tokens), "after": 1, ANSWER: items},
        tokens={"token": one_hot(tokens, size).T},
        outputs=one_hot(tokens[:items], size),
        units=(
            Head(
                0,
                "each position looks one back and notes whether an anchor is there",
                "mark",
                (before(length, 1),),
                (Move("token", "after", is_anchor),),
            ),
            Head(
                1,
                "the last position finds the position after the anchor and copies its token",
                "answer",
                (at_keys("after", [1.0]), not_first(length)),
                (Move("token", ANSWER, identity(len(tokens))[:, :items]),),
            ),
        ),
    )


def address(task: AnchorFunction) -> Program:
    """Return the program of `anchor/two-distances`: compute the key's position from the anchor, read the token there.

    Layer 0 computes the key's position t, the anchor's position plus its distance. Layer 1 scores position s by
    `2 s t - s²`, which is largest at s = t and 1 lower at its neighbours.
    """
    (first, last), size, length = task.vocabulary.items, task.vocabulary.size, task.placement.length
    distances = {}
    for rule in task.rules.values():
        slots = rule.pattern.text.split()
        distances[int(slots[0])] = len(slots) - 1
    tokens = [*range(first, last + 1), *distances]
    items, places = last - first + 1, torch.arange(length, dtype=torch.float64)
    distance = torch.tensor([[float(distances.get(token, 0))] for token in tokens], dtype=torch.float64)
    return Program(
        task,
        blocks={"token": len(tokens), "place": 1, ANSWER: items},
        tokens={"token": one_hot(tokens, size).T},
        outputs=one_hot(tokens[:items], size),
        units=(
            Head(
                0,
                "every position finds the anchor and adds up its position and its distance to the key",
                "address",
                (at_keys("token", (distance > 0).double().squeeze(1)),),
                (Move(POSITION, "place", places.unsqueeze(1)), Move("token", "place", distance)),
            ),
            Head(
                1,
                "the last position attends to this place and copies its token",
                "answer",
                (Match("place", POSITION, 2 * places.unsqueeze(0)), at_keys(POSITION, -(places**2))),
                (Move("token", ANSWER, identity(len(tokens))[:, :items]),),
            ),
        ),
        doubled=1,
    )


def induction(task: Task, asked: Sequence[int], answers: Sequence[int]) -> Program:
    """Return the program of an induction head: find an earlier copy of one's own token, and copy the token after it.

        token    7 2 9 7      layer 0   each position notes the token before it
        before   . 7 2 9      layer 1   a position finds the note 7 and copies the token there, 2

    Args:
        task: the task
        asked: the tokens that a scored position may hold
        answers: the tokens that may follow them
    """
    size, length = task.shape.input_size, task.shape.length
    tokens = sorted({*asked, *answers})
    of_asked, of_answers = (identity(len(tokens))[:, [tokens.index(one) for one in some]] for some in (asked, answers))
    return Program(
        task,
        blocks={"token": len(tokens), "before": len(asked), ANSWER: len(answers)},
        tokens={"token": one_hot(tokens, size).T},
        outputs=one_hot(answers, size),
        units=(
            Head(
                0,
                "each position looks one back and notes the token there",
                "note",
                (before(length, 1),),
                (Move("token", "before", of_asked),),
            ),
            Head(
                1,
                "a position finds the note of its own token and copies the token there",
                "answer",
                (Match("token", "before", of_asked), not_first(length)),
                (Move("token", ANSWER, of_answers),),
            ),
        ),
    )


def addition(task: AnchorFunction) -> Program:
    """Return the program of `x A B -> B(A(x))` or `A x -> A(x)` with operations such as +5.

    Every token has a number: for an item its centred id, for an anchor the amount that it adds. In layer 0 each
    position adds up the numbers of the one or two tokens before it, and the feed-forward layer turns the sum of these
    and its own number into a token. In layer 1 the last position copies that token from the end of the pattern, which
    it recognises by the anchors at and before that position.
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
                (Move("sum", ANSWER, identity(len(answers))),),
            ),
        ),
        doubled=2,
    )


_PATTERNS = {"x A B": ((1, 2), 2.0), "A x": ((1,), -1.0)}
"""For each pattern, the distances from its end to the tokens to collect, and the weight of an anchor at a position.
With this weight plus the count of anchors collected, the pattern's end scores at least 1 above every other position."""


def _amount(task: AnchorFunction, anchor: int) -> int:
    """Return what an anchor's operation adds. Errors: `SpecError` for an operation that is no addition."""
    items = np.arange(task.vocabulary.items[0], task.vocabulary.items[1] + 1)
    found = set((task.operations[anchor](items) - items).tolist())
    if len(found) > 1:
        raise SpecError(f"operations.{anchor}", "is no addition", "use operations such as +5")
    return int(found.pop())


def _to_tokens(values: list[int]) -> tuple[Float[Tensor, "one neuron"], Float[Tensor, "neuron value"]]:
    """Return the thresholds and the output map of neurons `relu(y - k)` that write 1 for the value equal to y, else 0.

    `relu(y - v + 1) - 2 relu(y - v) + relu(y - v - 1)` is 1 at y = v and 0 at every other whole number. `values` are
    consecutive.
    """
    thresholds = torch.arange(values[0] - 1, values[-1] + 2, dtype=torch.float64)
    writes = torch.zeros(len(thresholds), len(values), dtype=torch.float64)
    for place in range(len(values)):
        writes[place : place + 3, place] = torch.tensor([1.0, -2.0, 1.0], dtype=torch.float64)
    return -thresholds.unsqueeze(0), writes


_task: Callable[..., Any] = task  # its result is used as the task of the name's family


def _reading() -> Program:
    one = _task("anchor/reading-comprehension")
    (first, last), anchors = one.vocabulary.items, one.vocabulary.anchors
    return induction(one, anchors, range(first, last + 1))


def _induction() -> Program:
    one = _task("classics/repeated-sequence")
    return induction(one, range(one.vocabulary), range(one.vocabulary))


def _recall() -> Program:
    one = _task("classics/associative-recall")
    keys = range(1, one.vocabulary + 1)
    return induction(one, keys, range(keys.stop, keys.stop + one.vocabulary))


PROGRAMS: dict[str, Callable[[], Program]] = {
    "identity": lambda: next_token(_task("anchor/identity")),
    "two-distances": lambda: address(_task("anchor/two-distances")),
    "reading-comprehension": _reading,
    "induction": _induction,
    "recall": _recall,
    "composite": lambda: addition(_task("anchor/composite")),
    "synonym": lambda: addition(_task("anchor/synonym")),
    "multi-anchor": lambda: addition(_task("anchor/multi-anchor")),
    "retrieval": lambda: chains(_task("retrieval/tokens", symbols=24, implicit_curriculum=False)),
}
"""The programs of the compiled models, by name."""
