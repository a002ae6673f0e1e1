"""Equations (3)-(7) as the paper prints them, in the limit in which (1) and (2) are (3), against the task's oracle."""

from collections.abc import Callable

import pytest
import torch

from anchorlab.tasks import task_names
from anchorlab.tasks.anchor.equations import key_ratio, mean_near, one_anchor_ratio, recitation_ratio
from tests.tasks.examples import TASKS


def composite(x, anchors, g):
    """Equation (5): g(g(x_{i-1}; x_i); x_{i+1}) where x_i and x_{i+1} are anchors."""
    which, rows = _which(x, anchors), torch.arange(len(x))
    i = (which >= 0).int().argmax(dim=1)
    return _apply(_apply(x[rows, i - 1], which[rows, i], g), which[rows, i + 1], g)


def working_memory(x, anchors, g):
    """Equation (5) with noise between the anchors: g(g(x_{i-1}; x_i); x_k) where x_i and x_k, i < k, are anchors."""
    which, rows = _which(x, anchors), torch.arange(len(x))
    is_anchor = (which >= 0).int()
    i, k = is_anchor.argmax(dim=1), x.shape[1] - 1 - is_anchor.flip(1).argmax(dim=1)
    return _apply(_apply(x[rows, i - 1], which[rows, i], g), which[rows, k], g)


def reading_comprehension(x):
    """Equation (3) with the last token as anchor: sum_j x_{j+1} / ||x_j - x_n|| over sum_j 1 / ||x_j - x_n||.

    The question is the last token. The sums run over the anchors before it, j = 1, 3, .., and skip the items.
    """
    return mean_near(x[:, 1:-1:2], x[:, :-1:2] - x[:, -1:])


def classification(x):
    """Section 4.3: a_k where k is the arg min of |x_k - x_5|, as the limit of weights |x_k - x_5|^-p for large p."""
    distance = (x[:, :-1:2] - x[:, -1:]).abs()
    weights = (distance == distance.amin(dim=1, keepdim=True)).to(x.dtype)
    return (x[:, 1:-1:2] * weights).sum(dim=1) / weights.sum(dim=1)


def _which(x, anchors):
    """Return the index of the anchor at each position `[batch position]`, -1 for none."""
    which = torch.full(x.shape[:2], -1)
    for index, anchor in enumerate(anchors):
        which[(x == anchor).all(dim=-1)] = index
    return which


def _apply(key, anchor, g):
    """Return g(key; anchor) for each row."""
    return torch.stack([one(key) for one in g], dim=1)[torch.arange(len(key)), anchor]


ANCHOR = torch.tensor([3.0], dtype=torch.float64)


def numbers(inputs: torch.Tensor) -> torch.Tensor:
    return inputs.double()[..., None]


def number(value: float) -> torch.Tensor:
    return torch.tensor([float(value)], dtype=torch.float64)


def shifts(*amounts: int) -> list[Callable[[torch.Tensor], torch.Tensor]]:
    return [lambda key, amount=amount: key + amount for amount in amounts]


def by_anchor(inputs: torch.Tensor, ways: dict[int, Callable[[torch.Tensor], torch.Tensor]]) -> torch.Tensor:
    """The equation of the anchor that each sequence holds."""
    answers = torch.full((len(inputs),), -1.0, dtype=torch.float64)
    for anchor, way in ways.items():
        mine = (inputs == anchor).any(dim=1)
        answers[mine] = way(numbers(inputs[mine]))[:, 0]
    return answers


def one_anchor(amounts: dict[int, int]) -> Callable[[torch.Tensor], torch.Tensor]:
    ways = {
        a: lambda x, a=a, amount=amount: key_ratio(x, number(a), lambda key: key + amount)
        for a, amount in amounts.items()
    }
    return lambda inputs: by_anchor(inputs, ways)


def next_but(distance: int) -> Callable[[torch.Tensor, int], torch.Tensor]:
    return lambda x, j: x[:, j + distance] if j + distance < x.shape[1] else torch.zeros_like(x[:, 0])


COMPOSITE = (tuple(map(number, (1, 2, 3, 4))), shifts(5, 1, -2, -8))
SYNONYM = (tuple(map(number, (1, 2, 4, 9, 3))), shifts(5, 1, -8, -2, -2))
MEMORY = (tuple(map(number, (1, 2, 3, 4))), shifts(0, 1, 0, -2))
EQUATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "anchor/identity": lambda inputs: key_ratio(numbers(inputs), ANCHOR, lambda key: key)[:, 0],
    "anchor/statistical": lambda inputs: key_ratio(numbers(inputs), ANCHOR, lambda key: key)[:, 0],
    "anchor/frequency": one_anchor({3: 0, 4: 0}),
    "high frequency": one_anchor({3: 0, 4: 1}),
    "anchor/multi-anchor": one_anchor({a: a for a in range(1, 11)}),
    "identity two after": lambda inputs: one_anchor_ratio(numbers(inputs), ANCHOR, next_but(2))[:, 0],
    "anchor/two-distances": lambda inputs: by_anchor(
        inputs, {a: lambda x, a=a: one_anchor_ratio(x, number(a), next_but(a - 2)) for a in (3, 4)}
    ),
    "sum of two": lambda inputs: one_anchor_ratio(
        numbers(inputs), ANCHOR, lambda x, j: (next_but(1)(x, j) + next_but(3)(x, j)).div(2, rounding_mode="floor")
    )[:, 0],
    "anchor/composite": lambda inputs: composite(numbers(inputs), *COMPOSITE)[:, 0],
    "anchor/synonym": lambda inputs: composite(numbers(inputs), *SYNONYM)[:, 0],
    "synonym, plain": lambda inputs: composite(numbers(inputs), *SYNONYM)[:, 0],
    "anchor/working-memory": lambda inputs: working_memory(numbers(inputs), *MEMORY)[:, 0],
    "anchor/recitation": lambda inputs: recitation_ratio(numbers(inputs), ANCHOR)[:, 0],
    "anchor/reading-comprehension": lambda inputs: reading_comprehension(numbers(inputs))[:, 0],
    "anchor/classification": lambda inputs: classification(numbers(inputs))[:, 0],
}


def test_every_registered_anchor_function_has_an_equation() -> None:
    assert {name for name in task_names() if name.startswith("anchor/")} <= set(EQUATIONS)


@pytest.mark.parametrize("name", EQUATIONS)
def test_agrees_with_the_tasks_own_oracle(name: str) -> None:
    """On 100 000 sequences over all splits: equations over vectors against patterns and rules over tokens."""
    one = TASKS[name]
    for split in one.splits:
        inputs = one.sample(split, 100_000 // len(one.splits) + 1, 0).inputs
        answer = one.oracle(inputs)
        assert answer.known.all()
        assert torch.equal(EQUATIONS[name](inputs).round().long(), answer.answers[:, 0])
