"""Intervals over units and over conditions that share their seeds, and ceilings of curves, against closed forms."""

from itertools import product
from math import inf, log, nan

import numpy as np
import pytest
import torch
from scipy import stats
from torch import tensor

from anchorlab.errors import SpecError
from anchorlab.studies import interval
from anchorlab.studies.ideal import ideal_scores
from anchorlab.studies.interval import binomial, bootstrap
from anchorlab.studies.shared_seeds import mean_of_known, over_shared
from anchorlab.tasks import task


def test_the_interval_of_a_mean_is_about_students_and_covers_it_as_often_as_it_says():
    values = np.random.default_rng(3).normal(5.0, 2.0, size=12)
    low, high = bootstrap(torch.from_numpy(values))
    expected = stats.t.interval(0.95, 11, values.mean(), stats.sem(values))
    assert (low, high) == pytest.approx(expected, abs=0.05 * (expected[1] - expected[0]))
    plain = 2 * 1.96 * values.std() / np.sqrt(12)  # the width of the percentiles at 95 %
    assert high - low > 1.1 * plain
    # eight draws from a skewed law, 400 times: the plain percentile interval covers the mean in 86 % of them
    random = np.random.default_rng(0)
    found = [bootstrap(torch.from_numpy(random.exponential(size=8))) for _ in range(400)]
    assert 0.89 <= np.mean([low <= 1.0 <= high for low, high in found]) <= 0.97


def test_three_units_give_their_range_equal_ones_no_width_and_one_none():
    assert bootstrap(torch.tensor([1.0, 2.0, 6.0])) == (1.0, 6.0)
    assert bootstrap(torch.tensor([0.5, 0.5, 0.5])) == (0.5, 0.5)
    assert bootstrap(torch.tensor([0.5])) is None
    assert bootstrap(torch.tensor([])) is None
    values = torch.rand(7)
    assert bootstrap(values) == bootstrap(values)
    assert bootstrap(values) != bootstrap(values + 1)
    assert binomial(0, 0) is None


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


def ratio(rows):
    """Of the mean of the second condition to that of the first."""
    return rows[:, 1].mean() / rows[:, 0].mean()


def test_seeds_are_drawn_whole_in_all_ways():
    # each seed's second value is twice its first: any draw of whole seeds has the ratio 2, one of runs has not
    found = over_shared(tensor([[1.0, 2.0], [10.0, 20.0], [100.0, 200.0]]), ratio)
    assert found.value == 2 and found.units == (2, 2, 2) and found.interval == (2, 2)
    rows = tensor([[1.0, 3.0], [2.0, 3.0], [3.0, 3.0]])
    every = sorted(float(ratio(rows[list(draw)])) for draw in product(range(3), repeat=3))
    found = over_shared(rows, ratio)
    assert found.units == pytest.approx((3.0, 1.5, 1.0))  # whose mean is not the value
    assert found.value == pytest.approx(1.5)
    assert found.interval == pytest.approx((every[0], every[-1]))
    found = mean_of_known(tensor([[1.0, 0.0], [nan, 1.0], [nan, nan]]))
    assert found.units == (0.5, 1.0)
    assert found.value == 0.75  # and not two of three


def test_one_seed_is_one_value_and_values_that_are_not_finite_give_no_interval():
    found = over_shared(tensor([[1.0, 4.0]]), ratio)
    assert (found.value, found.units, found.interval) == (4, (4,), None)
    assert over_shared(torch.empty(0, 2), ratio).value is None
    without = over_shared(tensor([[0.0, 1.0], [1.0, 1.0]]), ratio)
    assert (without.value, without.units, without.interval) == (2, (1,), None)
    # Each seed alone is finite, but not every draw.
    found = over_shared(
        tensor([1.0, 2.0]), lambda rows: rows.mean() if len(set(rows.tolist())) > 1 or len(rows) == 1 else inf
    )
    assert found.units == (1, 2) and found.interval is None


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


def test_no_prediction_beats_it_on_its_own_law():
    recall = task("recall/noisy", source="uniform", tokens=5, length=12, alpha=0.5)
    batch = recall.sample("train", 4096, seed=0)
    law = recall.ideal(batch.inputs)
    for weight in (0.9, 0.5):  # mixed with guessing
        worse = weight * law + (1 - weight) / law.shape[-1]
        loss = -worse.gather(-1, batch.targets.unsqueeze(-1)).log().mean()
        assert ideal_scores(recall, "train")["loss"] < float(loss)
