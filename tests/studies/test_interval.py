"""Intervals over units, against published tables, Student's interval and counted coverage."""

import numpy as np
import pytest
import torch
from scipy import stats

from anchorlab.studies import interval
from anchorlab.studies.interval import binomial, bootstrap


def test_the_interval_of_a_mean_is_about_students_on_normal_values():
    values = np.random.default_rng(3).normal(5.0, 2.0, size=12)
    low, high = bootstrap(torch.from_numpy(values))
    expected = stats.t.interval(0.95, 11, values.mean(), stats.sem(values))
    assert (low, high) == pytest.approx(expected, abs=0.05 * (expected[1] - expected[0]))
    plain = 2 * 1.96 * values.std() / np.sqrt(12)  # the width of the percentiles at 95 %
    assert high - low > 1.1 * plain


def test_it_covers_the_mean_as_often_as_it_says():
    """Eight draws from a skewed law, 400 times: the plain percentile interval covers the mean in 86 % of them."""
    random = np.random.default_rng(0)
    found = [bootstrap(torch.from_numpy(random.exponential(size=8))) for _ in range(400)]
    assert 0.89 <= np.mean([low <= 1.0 <= high for low, high in found]) <= 0.97


def test_three_units_give_the_range_of_their_resampled_means():
    assert bootstrap(torch.tensor([1.0, 2.0, 6.0])) == (1.0, 6.0)


def test_what_is_taken_of_the_units():
    values = torch.tensor([1.0, 2.0, 3.0, 4.0, 50.0] * 4)
    low, high = bootstrap(values, torch.median)
    assert 1.0 <= low < 3.0 < high <= 50.0
    assert bootstrap(values)[1] > high or high == 4.0  # the mean follows the outliers, the median does not


@pytest.mark.parametrize("count", [2, 3, 5, 6])
def test_a_mean_that_is_taken_has_the_interval_of_the_mean(count):
    """With few units each resample is taken once; with six all are."""
    values, taken = torch.tensor([4.0, 0.5, 2.0, 9.0, 7.5, 1.0])[:count], []
    found = bootstrap(values, lambda one: taken.append(tuple(one.tolist())) or one.mean())
    assert found == pytest.approx(bootstrap(values))
    assert len(set(taken)) == len(taken) <= count**count if count < 6 else len(taken) == 10_000


def test_equal_units_have_an_interval_without_width_and_one_has_none():
    assert bootstrap(torch.tensor([0.5, 0.5, 0.5])) == (0.5, 0.5)
    assert bootstrap(torch.tensor([0.5])) is None
    assert bootstrap(torch.tensor([])) is None


def test_equal_units_give_equal_intervals():
    values = torch.rand(7)
    assert bootstrap(values) == bootstrap(values)
    assert bootstrap(values) != bootstrap(values + 1)


@pytest.mark.parametrize(
    ("passed", "count", "expected"),
    [  # Clopper and Pearson's closed forms: 0.025^(1/n) for all, and its mirror image for none
        (5, 5, (0.025 ** (1 / 5), 1.0)),
        (0, 4, (0.0, 1 - 0.025 ** (1 / 4))),
        (3, 10, (0.0667, 0.6525)),  # from their table
    ],
)
def test_the_interval_of_a_share(passed, count, expected):
    assert binomial(passed, count) == pytest.approx(expected, abs=1e-4)


def test_no_units_have_no_share():
    assert binomial(0, 0) is None


@pytest.mark.parametrize("count", [2, 3, 4])
def test_over_two_to_four_units_it_is_their_range(count):
    """Whose chance to hold the median of a continuous law is 1 - 2^(1 - n): all values on one side, or not."""
    random = np.random.default_rng(5)
    draws = [torch.from_numpy(random.normal(size=count)) for _ in range(300)]
    found = [bootstrap(values) for values in draws]
    assert all(one == pytest.approx((float(v.min()), float(v.max()))) for one, v in zip(found, draws, strict=True))
    share = 1 - 2 ** (1 - count)
    assert np.mean([low <= 0 <= high for low, high in found]) == pytest.approx(share, abs=4 * (0.25 / 300) ** 0.5)


def test_the_level_makes_up_for_few_units(monkeypatch):
    """Hesterberg's level for eight units, by the printed quantile 2.365 of Student's t with seven degrees of freedom.

    The ends are set against the exact law of the resampled mean, the eightfold convolution of the units' law.
    """
    monkeypatch.setattr(interval, "RESAMPLES", 1_000_000)
    units = np.array([3, 10, 24, 31, 55, 58, 76, 97])
    one, law = np.bincount(units) / 8, np.ones(1)
    for _ in range(8):
        law = np.convolve(law, one)
    below = law.cumsum()
    tail = stats.norm.cdf(-2.365 * (8 / 7) ** 0.5)
    low, high = bootstrap(torch.from_numpy(units))
    assert below[round(8 * low)] == pytest.approx(tail, rel=0.1)
    assert 1 - below[round(8 * high) - 1] == pytest.approx(tail, rel=0.1)
