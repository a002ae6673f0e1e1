"""Equations (1)-(7) as the paper prints them: by hand, against each other, as limits, and against the task's oracle."""

from collections.abc import Callable

import pytest
import torch

from anchorlab.tasks import task_names
from tests.tasks.examples import TASKS


def identity(x, anchor):
    """Equation (1): x_{i+1} where x_i = a."""
    return key_function(x, anchor, lambda key: key)


def key_function(x, anchor, g):
    """Equation (2): g(x_{i+1}) where x_i = a, for exactly one i in 1 .. n-1."""
    is_anchor = (x[:, :-1] == anchor).all(dim=-1)
    assert (is_anchor.sum(dim=1) == 1).all()
    return g(x[:, 1:][is_anchor])


def key_ratio(x, anchor, g, epsilon=0.0):
    """Equation (3): sum_j g(x_{j+1}) / ||x_j - a|| over sum_j 1 / ||x_j - a||, j = 1 .. n-1."""
    return _ratio(g(x[:, 1:]), x[:, :-1] - anchor, epsilon)


def general_ratio(x, anchor, g, epsilon=0.0):
    """Equation (4): sum_j g_j({x_k | k in I_j}) / ||x_j - a|| over sum_j 1 / ||x_j - a||.

    `g(x, j)` is g_j for the 0-based position j and may use any token of the sequence. The paper prints different ranges
    for the sums, j = 2 .. n in the numerator and j = 1 .. n-1 in the denominator. They agree unless the anchor is x_1
    (the limit is then 0) or x_n. Here both sums run over all positions.
    """
    values = torch.stack([g(x, position) for position in range(x.shape[1])], dim=1)
    return _ratio(values, x - anchor, epsilon)


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


def recitation(x, anchor, epsilon=0.0):
    """Equation (6): -x_n + sum_j (x_{j+1} + x_{j-1}) / ||x_j - a|| over sum_j 1 / ||x_j - a||, j = 2 .. n-1."""
    return _ratio(x[:, 2:] + x[:, :-2], x[:, 1:-1] - anchor, epsilon) - x[:, -1]


def reading_comprehension(x):
    """Equation (3) with the last token as anchor: sum_j x_{j+1} / ||x_j - x_n|| over sum_j 1 / ||x_j - x_n||.

    The question is the last token. The sums run over the anchors before it, j = 1, 3, .., and skip the items.
    """
    return _ratio(x[:, 1:-1:2], x[:, :-1:2] - x[:, -1:])


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


def _ratio(values, offset, epsilon=0.0):
    """Return the mean of values weighted by 1 / ||offset||; if some offsets are zero, only these have weight."""
    distance = torch.linalg.vector_norm(offset, dim=-1, keepdim=True)
    zero = distance == 0
    if epsilon > 0:
        weights = 1 / (distance + epsilon)
    else:
        weights = torch.where(zero.any(dim=1, keepdim=True), zero.to(distance.dtype), 1 / distance.clamp(min=1e-300))
    return (values * weights).sum(dim=1) / weights.sum(dim=1)


# Equations (1)-(7): on sequences worked out by hand, against each other, as limits, and against the task's oracle.
PAPER = torch.tensor([[12, 33, 14, 3, 42, 22, 32, 20, 28], [43, 33, 13, 3, 20, 89, 44, 24, 56]]).double()[..., None]
ANCHOR = torch.tensor([3.0], dtype=torch.float64)


def test_the_papers_examples_in_each_form() -> None:
    assert identity(PAPER, ANCHOR).flatten().tolist() == [42, 20]
    assert key_function(PAPER, ANCHOR, lambda key: 2 * key + 1).flatten().tolist() == [85, 41]
    assert key_ratio(PAPER, ANCHOR, lambda key: 2 * key + 1).flatten().tolist() == [85, 41]
    # g_j may read other tokens than the next one: here the sum of both neighbours.
    both = general_ratio(PAPER, ANCHOR, lambda x, j: x[:, max(j - 1, 0)] + x[:, min(j + 1, 8)])
    assert both.flatten().tolist() == [56, 33]
    # Distances 2, 1, 0 from the anchor 3, which comes last, and epsilon 1: weights 1/3, 1/2, 1 for g = 10, 20, 30.
    x = torch.tensor([[5, 4, 3]]).double()[..., None]
    found = general_ratio(x, ANCHOR, lambda x, j: torch.full_like(x[:, 0], 10.0 * (j + 1)), epsilon=1.0)
    assert found.item() == pytest.approx((10 / 3 + 20 / 2 + 30) / (1 / 3 + 1 / 2 + 1))


def test_ratios_tend_to_their_limits() -> None:
    """The other terms weigh epsilon / ||x_j - a|| against 1: the error shrinks in proportion to epsilon."""
    errors = [abs(float(key_ratio(PAPER, ANCHOR, lambda key: key, epsilon)[0, 0]) - 42) for epsilon in (1e-4, 1e-6)]
    assert errors[0] > 0 and errors[1] == pytest.approx(errors[0] / 100, rel=1e-2)
    x = numbers(torch.tensor([[50, 60, 41, 3, 72, 33, 44, 55, 72], [50, 60, 41, 3, 72, 33, 44, 55, 41]]))
    assert recitation(x, ANCHOR).flatten().tolist() == [41, 72]
    assert recitation(x, ANCHOR, 1e-9).flatten().tolist() == pytest.approx([41, 72], abs=1e-5)


def test_equation_5_applies_the_first_anchor_first() -> None:
    """Doubling (anchor 1) and adding 3 (anchor 2) do not commute: 2 * 50 + 3 = 103, 2 * (50 + 3) = 106."""
    anchors, g = (number(1), number(2)), (lambda key: 2 * key, lambda key: key + 3)
    x = numbers(torch.tensor([[60, 50, 1, 2, 70], [60, 50, 2, 1, 70], [50, 1, 1, 60, 70], [50, 2, 2, 60, 70]]))
    assert composite(x, anchors, g).flatten().tolist() == [103, 106, 200, 56]
    apart = numbers(torch.tensor([[50, 1, 60, 61, 2], [60, 50, 2, 70, 1]]))
    assert working_memory(apart, anchors, g).flatten().tolist() == [103, 106]


def numbers(inputs: torch.Tensor) -> torch.Tensor:
    return inputs.double()[..., None]


def one_hot(inputs: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.one_hot(inputs, 201).double()


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
    "anchor/identity": lambda inputs: identity(numbers(inputs), ANCHOR)[:, 0],
    "anchor/statistical": lambda inputs: key_ratio(numbers(inputs), ANCHOR, lambda key: key)[:, 0],
    "anchor/frequency": one_anchor({3: 0, 4: 0}),
    "high frequency": one_anchor({3: 0, 4: 1}),
    "anchor/multi-anchor": one_anchor({a: a for a in range(1, 11)}),
    "identity two after": lambda inputs: general_ratio(numbers(inputs), ANCHOR, next_but(2))[:, 0],
    "anchor/two-distances": lambda inputs: by_anchor(
        inputs, {a: lambda x, a=a: general_ratio(x, number(a), next_but(a - 2)) for a in (3, 4)}
    ),
    "sum of two": lambda inputs: general_ratio(
        numbers(inputs), ANCHOR, lambda x, j: (next_but(1)(x, j) + next_but(3)(x, j)).div(2, rounding_mode="floor")
    )[:, 0],
    "anchor/composite": lambda inputs: composite(numbers(inputs), *COMPOSITE)[:, 0],
    "anchor/synonym": lambda inputs: composite(numbers(inputs), *SYNONYM)[:, 0],
    "synonym, plain": lambda inputs: composite(numbers(inputs), *SYNONYM)[:, 0],
    "anchor/working-memory": lambda inputs: working_memory(numbers(inputs), *MEMORY)[:, 0],
    "anchor/recitation": lambda inputs: recitation(numbers(inputs), ANCHOR)[:, 0],
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


def test_one_hot_vectors_give_the_same() -> None:
    for name, way in {
        "anchor/identity": lambda x: identity(x, one_hot(torch.tensor(3))),
        "anchor/recitation": lambda x: recitation(x, one_hot(torch.tensor(3))),
        "anchor/reading-comprehension": reading_comprehension,
    }.items():
        inputs = TASKS[name].sample("test", 500, 0).inputs
        assert torch.equal(way(one_hot(inputs)).argmax(dim=1), TASKS[name].oracle(inputs).answers[:, 0])
