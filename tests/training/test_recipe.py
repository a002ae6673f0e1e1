"""Learning-rate schedules against closed forms."""

import math

import pytest

from anchorlab.errors import SpecError
from anchorlab.training import Constant, Recipe, WarmupCosine

PAPER = WarmupCosine(warmup=400, horizon=4000, start=0.1, end=0.1)
CODE = PAPER.replace(horizon=4400)


@pytest.mark.parametrize(
    ("schedule", "time", "rate"),
    [
        (PAPER, 0, 2e-5),
        (PAPER, 200, 1.1e-4),
        (PAPER, 400, 2e-4),
        (PAPER, 1300, 1.1e-4 + 9e-5 * math.cos(math.pi / 4)),
        (PAPER, 2200, 1.1e-4),
        (PAPER, 4000, 2e-5),
        (PAPER, 5000, 2e-5),
        (CODE, 400, 2e-4),
        (CODE, 2400, 1.1e-4),
        (CODE, 4000, 1.1e-4 + 9e-5 * math.cos(0.9 * math.pi)),
        (CODE, 4400, 2e-5),
    ],
)
def test_the_paper_warms_up_tenfold_and_comes_back(schedule, time, rate):
    assert 2e-4 * schedule.factor(time) == pytest.approx(rate, rel=1e-12)


def test_without_warmup_it_starts_at_the_top():
    assert WarmupCosine(horizon=10).factor(0) == 1
    assert WarmupCosine(horizon=10).factor(5) == pytest.approx(0.5)
    assert WarmupCosine(horizon=10).factor(10) == 0


def test_constant():
    assert {Constant().factor(time) for time in (0, 1, 10**9)} == {1.0}


def test_the_curve_does_not_know_the_duration():
    short, long = (Recipe(schedule=PAPER, duration=duration) for duration in (500, 4000))
    assert [short.schedule.factor(time) for time in range(500)] == [long.schedule.factor(time) for time in range(500)]


@pytest.mark.parametrize("horizon", [1, 400])
def test_a_horizon_within_the_warmup_is_refused(horizon):
    with pytest.raises(SpecError, match=f"^schedule.*horizon: {horizon} is not after the warm-up of 400"):
        Recipe.parse({"schedule": {"kind": "warmup_cosine", "warmup": 400, "horizon": horizon}})
