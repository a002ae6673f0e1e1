"""Equations (1)-(4): on sequences worked out by hand, against each other, as limits, and against the task's oracle."""

import pytest
import torch

from anchorlab.errors import SpecError
from anchorlab.tasks import AnchorFunction
from anchorlab.tasks.anchor.closed_form import closed_form_answers, general_ratio, identity, key_function, key_ratio

from ..examples import COMPOSITE, TASKS

PAPER = torch.tensor([[12, 33, 14, 3, 42, 22, 32, 20, 28], [43, 33, 13, 3, 20, 89, 44, 24, 56]]).double()[..., None]
ANCHOR = torch.tensor([3.0], dtype=torch.float64)


def test_the_papers_examples() -> None:
    assert identity(PAPER, ANCHOR).flatten().tolist() == [42, 20]
    assert key_function(PAPER, ANCHOR, lambda key: 2 * key + 1).flatten().tolist() == [85, 41]
    assert key_ratio(PAPER, ANCHOR, lambda key: 2 * key + 1).flatten().tolist() == [85, 41]


def test_general_form_takes_any_tokens() -> None:
    """g_j may read other tokens than the next one: here the sum of both neighbours."""
    assert general_ratio(PAPER, ANCHOR, lambda x, j: x[:, max(j - 1, 0)] + x[:, min(j + 1, 8)]).flatten().tolist() == [
        56,
        33,
    ]


def test_ratio_tends_to_the_limit_linearly() -> None:
    """The other terms weigh epsilon / ||x_j - a|| against 1: the error shrinks in proportion to epsilon."""
    errors = [abs(float(key_ratio(PAPER, ANCHOR, lambda key: key, epsilon)[0, 0]) - 42) for epsilon in (1e-4, 1e-6)]
    assert errors[0] > 0 and errors[1] == pytest.approx(errors[0] / 100, rel=1e-2)


def test_printed_ranges_differ_for_an_anchor_that_comes_first() -> None:
    x = torch.tensor([[3, 42, 22, 30], [42, 3, 22, 30]]).double()[..., None]

    def next_token(x: torch.Tensor, j: int) -> torch.Tensor:
        return x[:, min(j + 1, 3)]

    assert general_ratio(x, ANCHOR, next_token).flatten().tolist() == [42, 22]
    assert general_ratio(x, ANCHOR, next_token, as_printed=True).flatten().tolist() == [0, 22]


def test_equation_2_needs_one_anchor() -> None:
    with pytest.raises(SpecError, match="exactly once"):
        identity(torch.tensor([[3, 4, 3, 5]]).double()[..., None], ANCHOR)


ONE_ANCHOR = {k: v for k, v in TASKS.items() if isinstance(v, AnchorFunction) and v.placement.anchors == 1}


@pytest.mark.parametrize("one", ONE_ANCHOR.values(), ids=ONE_ANCHOR.keys())
@pytest.mark.parametrize("representation", ["number", "one_hot"])
def test_agrees_with_the_tasks_own_oracle(one: AnchorFunction, representation: str) -> None:
    for split in one.splits:
        inputs = one.sample(split, 500, 0).inputs
        assert torch.equal(closed_form_answers(one, inputs, representation), one.oracle(inputs).answers[:, 0])


def test_two_anchors_have_another_equation() -> None:
    with pytest.raises(SpecError, match="one-anchor"):
        closed_form_answers(COMPOSITE, COMPOSITE.sample("train", 1, 0).inputs)
