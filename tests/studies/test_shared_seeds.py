"""Measurements over conditions that share their seeds."""

from itertools import product
from math import inf, nan

import pytest
import torch
from torch import tensor

from anchorlab.studies.shared_seeds import mean_of_known, over_shared


def ratio(rows):
    """Of the mean of the second condition to that of the first."""
    return rows[:, 1].mean() / rows[:, 0].mean()


def test_seeds_are_drawn_whole():
    """Each seed's second value is twice its first: any draw of whole seeds has the ratio 2, one of runs has not."""
    found = over_shared(tensor([[1.0, 2.0], [10.0, 20.0], [100.0, 200.0]]), ratio)
    assert found.value == 2 and found.units == (2, 2, 2) and found.interval == (2, 2)


def test_the_interval_is_that_of_all_draws():
    rows = tensor([[1.0, 3.0], [2.0, 3.0], [3.0, 3.0]])
    every = sorted(float(ratio(rows[list(draw)])) for draw in product(range(3), repeat=3))
    found = over_shared(rows, ratio)
    assert found.units == pytest.approx((3.0, 1.5, 1.0))  # whose mean is not the value
    assert found.value == pytest.approx(1.5)
    assert found.interval == pytest.approx((every[0], every[-1]))


def test_one_seed_is_one_value_without_an_interval():
    found = over_shared(tensor([[1.0, 4.0]]), ratio)
    assert (found.value, found.units, found.interval) == (4, (4,), None)
    assert over_shared(torch.empty(0, 2), ratio).value is None


def test_values_that_are_not_finite_give_no_interval():
    without = over_shared(tensor([[0.0, 1.0], [1.0, 1.0]]), ratio)
    assert (without.value, without.units, without.interval) == (2, (1,), None)
    # Each seed alone is finite, but not every draw.
    found = over_shared(
        tensor([1.0, 2.0]), lambda rows: rows.mean() if len(set(rows.tolist())) > 1 or len(rows) == 1 else inf
    )
    assert found.units == (1, 2) and found.interval is None


def test_a_seed_is_the_mean_of_the_conditions_that_it_has():
    found = mean_of_known(tensor([[1.0, 0.0], [nan, 1.0], [nan, nan]]))
    assert found.units == (0.5, 1.0)
    assert found.value == 0.75  # and not two of three
