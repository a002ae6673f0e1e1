"""Intervals over units and over conditions that share their seeds, and ceilings of curves, against closed forms."""

from math import inf, log, nan

import numpy as np
import pytest
import torch
from scipy import stats
from torch import tensor

from anchorlab.errors import SpecError
from anchorlab.findings.interval import FEW, interval_again, share
from anchorlab.studies.ideal import ideal_scores
from anchorlab.studies.interval import bootstrap, interval
from anchorlab.studies.shared_seeds import mean_of_known, over_shared
from anchorlab.tasks import task


@pytest.mark.parametrize("count", range(2, 13))
def test_over_two_to_twelve_normal_values_the_interval_covers_the_mean_as_often_as_it_says(count):
    random, trials = np.random.default_rng(count), 2000 if count < FEW else 300
    found = [interval(torch.from_numpy(random.normal(3.0, 2.0, size=count))) for _ in range(trials)]
    covered = np.mean([low <= 3.0 <= high for low, high in found])
    assert covered == pytest.approx(0.95, abs=3 * (0.95 * 0.05 / trials) ** 0.5 + (0.015 if count >= FEW else 0))


def test_the_bootstrap_of_a_mean_is_about_students():
    values = np.random.default_rng(3).normal(5.0, 2.0, size=12)
    low, high = interval(torch.from_numpy(values))
    expected = stats.t.interval(0.95, 11, values.mean(), stats.sem(values))
    assert (low, high) == pytest.approx(expected, abs=0.05 * (expected[1] - expected[0]))
    plain = 2 * 1.96 * values.std() / np.sqrt(12)  # the width of the percentiles at 95 %
    assert high - low > 1.1 * plain
    assert interval(torch.from_numpy(values)) == (low, high)  # the same units, the same interval


def test_equal_units_one_unit_and_values_that_are_not_finite_have_no_interval():
    for units in ([0.5, 0.5, 0.5], [1.0, 1.0 + 1e-7], [0.5], [], [1.0, nan], [1.0, inf, 2.0], [0.0, 0.0]):
        assert interval(tensor(units)) is None
    assert share(0, 0) is None


def test_what_is_taken_of_the_units():
    values = tensor([1.0, 2.0, 3.0, 4.0, 50.0] * 4)
    low, high = interval(values, torch.median)
    assert 1.0 <= low < 3.0 < high <= 50.0
    assert interval(values)[1] > high or high == 4.0  # the mean follows the outliers, the median does not
    assert interval(values, torch.mean) == pytest.approx(interval(values))
    # below ten units: the value, here twice the mean, and the spread of what each unit gives alone
    low, high = interval(values[:5], lambda one: 2 * one.mean())
    assert (low, high) == pytest.approx(tuple(2 * end for end in interval(values[:5])))


def test_resamples_that_all_give_one_value_reach_to_the_next_units():
    """Steps on a grid, two of them never reached and counted as very late: Student's would go below the least."""
    steps = [1000.0] * 6 + [1500.0] * 22 + [2000.0] * 10 + [20_000.0] * 2
    assert interval(tensor(steps), torch.median) == (1000, 2000)
    assert interval_again(1500.0, steps, (1500, 1500), None) == (1000, 2000)
    assert interval(tensor([1500.0] * 38 + [2000.0] * 2), torch.median) == (1000, 2000)  # the same width on both sides
    least = [2.0] * 11 + [5.0]  # the least of twelve is 2 in every resample that draws any of the eleven
    assert interval(tensor(least), torch.min) == interval_again(2.0, least, (2.0, 2.0), None) == (-1, 5)


def test_the_median_of_a_grid_is_covered():
    """Steps of an event with a chance of 0.16 at each: their median is 4, where the distribution passes one half."""
    assert 1 - 0.84**3 < 0.5 < 1 - 0.84**4
    random = np.random.default_rng(0)
    found = [interval(torch.from_numpy(random.geometric(0.16, size=20)), torch.median) for _ in range(60)]
    assert sum(one is not None and one[0] <= 4 <= one[1] for one in found) >= 54


@pytest.mark.parametrize(
    ("units", "kept", "spread", "expected"),
    [
        ((1, 2, 6), (1, 6), None, interval(tensor([1.0, 2.0, 6.0]))),  # the range that was kept of three
        ((1, 0, 1, 1), (0.25, 1), None, share(3, 4)),
        ((1, 1, 1), (1, 1), "3 of 3 seeds", share(3, 3)),
        ((1, 1, 1), (1, 1), "1 to 1 over 3 seeds", None),  # equal accuracies are no share
        ((1, 0, 1), None, "0 to 1 over 3 seeds", interval(tensor([1.0, 0.0, 1.0]))),  # nor is what is taken of units
        ((0.5,) * 12, (0.5, 0.5), None, None),
        (tuple(range(12)), (4, 7), None, (4, 7)),  # a bootstrap interval
        ((2.0,), (2, 2), None, None),
        ((), (2, 3), None, (2, 3)),  # of a fit
    ],
)
def test_kept_values_are_judged_by_the_rule_of_today(units, kept, spread, expected):
    value = float(np.mean(units)) if units else 2.5
    assert interval_again(value, units, kept, spread) == (None if expected is None else pytest.approx(expected))


@pytest.mark.parametrize(
    ("passed", "count", "expected"),
    [  # Clopper and Pearson's closed forms, each bound at 95 %: 0.05^(1/n) for all, and its mirror image for none
        (5, 5, (0.05 ** (1 / 5), 1.0)),
        (0, 4, (0.0, 1 - 0.05 ** (1 / 4))),
        (3, 10, (0.0873, 0.6066)),  # from their table of 90 %
        (700, 1000, (0.6753, 0.7238)),  # scipy's binomtest at 90 %
        (1_000_000, 1_000_000, (0.05**1e-6, 1.0)),
        (0, 2000, (0.0, 1 - 0.05 ** (1 / 2000))),
        (500_000, 1_000_000, (0.5 - 1.645 * 0.0005, 0.5 + 1.645 * 0.0005)),  # close to normal
    ],
)
def test_the_bounds_of_a_share(passed, count, expected):
    assert share(passed, count) == pytest.approx(expected, abs=1e-4)


def test_the_level_makes_up_for_few_units(monkeypatch):
    """Hesterberg's level for eight units, by the printed quantile 2.365 of Student's t with seven degrees of freedom.

    The ends are set against the exact law of the resampled mean, the eightfold convolution of the units' law.
    """
    monkeypatch.setattr("anchorlab.studies.interval.RESAMPLES", 1_000_000)
    units = np.array([3, 10, 24, 31, 55, 58, 76, 97])
    one, law = np.bincount(units) / 8, np.ones(1)
    for _ in range(8):
        law = np.convolve(law, one)
    below = law.cumsum()
    tail = stats.norm.cdf(-2.365 * (8 / 7) ** 0.5)
    low, high = bootstrap(torch.from_numpy(units))  # with fewer units than `interval` resamples
    assert below[round(8 * low)] == pytest.approx(tail, rel=0.1)
    assert 1 - below[round(8 * high) - 1] == pytest.approx(tail, rel=0.1)


def ratio(rows):
    """Of the mean of the second condition to that of the first."""
    return rows[:, 1].mean() / rows[:, 0].mean()


def test_seeds_are_drawn_whole():
    # each seed's second value is twice its first: any draw of whole seeds has the ratio 2, one of runs has not
    found = over_shared(tensor([[1.0, 2.0], [10.0, 20.0], [100.0, 200.0]]), ratio)
    assert found.value == 2 and found.units == (2, 2, 2) and found.interval is None
    rows = tensor([[1.0, 3.0], [2.0, 3.0], [3.0, 3.0]])
    found = over_shared(rows, ratio)
    assert found.units == pytest.approx((3.0, 1.5, 1.0))  # whose mean is not the value
    assert found.value == pytest.approx(1.5)
    half = 4.303 * (13 / 12) ** 0.5 / 3**0.5  # the units' variance is 13/12
    assert found.interval == pytest.approx((1.5 - half, 1.5 + half), abs=1e-3)
    many = over_shared(rows.repeat(4, 1), ratio)
    assert 1.1 < many.interval[0] < 1.5 < many.interval[1] <= 2.0
    found = mean_of_known(tensor([[1.0, 0.0], [nan, 1.0], [nan, nan]]))
    assert found.units == (0.5, 1.0)
    assert found.value == 0.75  # and not two of three


def test_one_seed_is_one_value_and_values_that_are_not_finite_give_no_interval():
    found = over_shared(tensor([[1.0, 4.0]]), ratio)
    assert (found.value, found.units, found.interval) == (4, (4,), None)
    assert over_shared(torch.empty(0, 2), ratio).value is None
    without = over_shared(tensor([[0.0, 1.0], [1.0, 1.0]]), ratio)
    assert (without.value, without.units, without.interval) == (2, (1,), None)
    # from ten seeds on, each seed alone is finite, but not every draw
    found = over_shared(torch.arange(10.0), lambda rows: rows.mean() if len(rows.unique()) in (1, 10) else inf)
    assert len(found.units) == 10 and found.interval is None


def test_ceilings_of_associative_memory_and_least_squares():
    # p(y | x) is the prediction: its loss is the law's entropy in training and -log(1 - alpha) without noise
    memory = task("associative/noisy", inputs=3, alpha=0.1)
    entropy = -0.9 * log(0.9) - 0.1 * log(0.1)
    assert ideal_scores(memory, "train", n=30) == pytest.approx({"loss": entropy, "right": 0.9, "noise": 0.1}, rel=1e-5)
    assert ideal_scores(memory, "clean", n=30)["loss"] == pytest.approx(-log(0.9), rel=1e-5)
    # the least-norm fit of k of d exact pairs leaves 1 - k/d of a variance of 1
    one = task("classics/linear-regression", dimension=4, examples=6)
    found = ideal_scores(one, "train", n=20_000)
    assert found == pytest.approx(dict.fromkeys(("loss", "error"), (1 + 0.75 + 0.5 + 0.25) / 6), rel=0.03)
    with pytest.raises(SpecError):
        ideal_scores(task("retrieval/minimal"), "train", n=4)


@pytest.mark.parametrize("alpha", [0.25, 0.5])
def test_recall_in_clean_sequences(alpha):
    """Where y has been told it gets 1 - alpha, else a seventh of that; the noise gets alpha in any case."""
    recall = task("recall/noisy", source="uniform", tokens=7, length=10, alpha=alpha)
    trigger = recall.triggers[0]
    tokens = recall.sample("clean", 500, seed=0).inputs.tolist()
    told = sum(trigger in sequence[:-2] for sequence in tokens) / 500  # what follows a trigger at T - 1 is set
    assert 0.5 < told < 0.9
    found = ideal_scores(recall, "clean", n=500, seed=0)
    assert found["right"] == pytest.approx((1 - alpha) * (told + (1 - told) / 7), rel=1e-5)
    assert found["noise"] == pytest.approx(alpha, rel=1e-5)
    assert found["loss"] == pytest.approx(-log(1 - alpha) + (1 - told) * log(7), rel=1e-5)
