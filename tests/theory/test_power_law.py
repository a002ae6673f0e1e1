import numpy as np
import pytest

from anchorlab.errors import SpecError
from anchorlab.theory import PowerLaw, fit_power_law


def test_an_exact_power_is_found_and_told_from_a_correction():
    x = np.array([1.0, 2.0, 5.0, 100.0])
    wide = np.geomspace(1, 50, 6)
    corrected = fit_power_law(wide, 3.0 * wide**-0.5 * np.exp(-2.0 * wide**-1), correction=-1.0)
    for law in (fit_power_law(x, 3.0 * x**-0.5), corrected):
        assert (law.slope, law.factor) == pytest.approx((-0.5, 3.0))
        assert law.high - law.low < 1e-6


@pytest.mark.parametrize("correction", [None, -0.5])
def test_the_interval_holds_the_slope_in_95_cases_of_100(correction):
    random, x = np.random.default_rng(0), np.geomspace(1, 100, 8)
    laws = [fit_power_law(x, x**-1.5 * np.exp(0.1 * random.standard_normal(8)), correction) for _ in range(600)]
    inside = np.mean([law.low <= -1.5 <= law.high for law in laws])
    assert inside == pytest.approx(0.95, abs=0.035)  # four standard errors


@pytest.mark.parametrize(
    ("x", "y", "correction", "message"),
    [
        ([1.0, 2.0], [1.0, 2.0], None, "x: 2 points"),
        ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], -1.0, "x: 3 points"),
        ([1.0, 2.0, 3.0], [1.0, 0.0, 3.0], None, "y: has values that are not positive"),
        ([-1.0, 2.0, 3.0], [1.0, 1.0, 3.0], None, "x: has values that are not positive"),
    ],
)
def test_what_has_no_slope_is_refused(x, y, correction, message):
    with pytest.raises(SpecError, match=message):
        fit_power_law(np.array(x), np.array(y), correction)


def test_how_far_an_interval_lies_from_a_slope():
    law = PowerLaw(slope=-1.9, low=-2.2, high=-1.5, factor=1.0)
    assert law.apart(-2.0) == (0, 0.5)
    assert law.apart(-1.0) == pytest.approx((0.5, 1.2))
    assert law.apart(-3.0) == pytest.approx((0.8, 1.5))
