"""Values measured again beside the published ones: hand-made units with known answers, and simulated shifts."""

from math import nan
from statistics import mean

import numpy as np
import pytest

from anchorlab.findings import Claim
from anchorlab.findings.comparison import compared

PLAIN = Claim("own/one", "a statement", "a source", "1", "a value", (None, None))
EXACT = Claim("own/two", "a statement", "a source", "1", "a value", (None, None), exact=True)


def of(*units, claim=PLAIN):
    return claim.judge(mean(units), "quick", units=units)


@pytest.mark.parametrize(
    ("published", "here", "word"),
    [
        (None, of(0.5, 0.6), "not published"),
        (PLAIN.judge(None, "quick"), of(0.5, 0.6), "not published"),
        (of(nan, claim=EXACT), of(0.5, claim=EXACT), "not published"),
        (of(0.5, 0.6), of(0.5, nan), "not published"),
        (of(0.5, 0.6), of(0.5, 0.6000001), "equal"),
        (of(0.5), of(0.5), "equal"),
        (of(0.5), of(0.6), "undecided"),  # one seed
        (of(0.007767, claim=EXACT), of(0.01544, claim=EXACT), "differs"),  # whatever the verdict
        (of(2.0, claim=EXACT), of(2.001, claim=EXACT), "equal"),
        # the published standard deviation is 1; differences of all seeds are alike but for 0.01
        (of(0, 1, 2), of(0.5, 1.51, 2.49), "agrees"),
        (of(0, 1, 2), of(1.5, 2.51, 3.49), "differs"),
        (of(0, 1, 2), of(-1.5, -0.51, 0.49), "differs"),
        (of(0, 1, 2), of(0.99, 2.0, 3.01), "undecided"),  # the interval holds 1
        (of(0, 1, 2), of(2, 0, 1), "undecided"),  # no shift, but other paths
        (of(1, 1, 1), of(0.5, 0.51, 0.49), "differs"),  # nothing varied
        (of(*range(20)), of(*range(1, 18, 4)), "undecided"),  # fewer seeds: Welch's interval of -0.5, ±6.9
        (of(*range(20)), of(*range(100, 110)), "differs"),
    ],
)
def test_units_are_compared_one_by_one(published, here, word):
    assert compared(published, here).word == word


def test_the_interval_of_a_difference_is_students_or_welchs_by_hand():
    found = compared(of(0, 1, 2), of(2, 0, 1))  # differences 2, -1, -1: standard deviation 3^0.5
    assert found.difference == 0 and found.interval == pytest.approx((-4.303, 4.303), abs=1e-3)
    # variances 1/3 and 1 of the means: (4/3)^2 / (1/18 + 1) = 1.68 degrees of freedom, between the quantiles of 2 and 1
    found = compared(of(0, 1, 2), of(1, 3))
    half = (found.interval[1] - found.interval[0]) / 2
    assert found.difference == 1 and 4.303 < half / (1 / 3 + 1) ** 0.5 < 12.706


@pytest.mark.parametrize("seeds", [3, 5, 10, 30])
def test_a_shift_of_one_standard_deviation_is_rarely_called_agreement(seeds):
    """New seeds, as on a processor on which every seed takes another path; 2000 comparisons."""
    random = np.random.default_rng(seeds)

    def rate(shift, word):
        pairs = random.normal(size=(2000, 2, seeds)) + np.array([[0.0], [shift]])
        return np.mean([compared(of(*a), of(*b)).word == word for a, b in pairs.tolist()])

    assert rate(1.0, "agrees") <= 0.05
    assert rate(0.0, "differs") <= 0.05
    assert (rate(0.0, "agrees") >= 0.85) == (seeds == 30)
