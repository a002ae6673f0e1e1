"""What the study of Theorem 2 measures, on descents made up from the flow."""

import numpy as np
import pytest

from anchorlab.runs import Store
from anchorlab.studies import run_study, study
from anchorlab.studies.truncation.rank_one_measures import (
    RATES,
    Descent,
    at_zero_step,
    descent_slope,
    flow_slope,
    off_full,
    orders,
)
from anchorlab.theory import gradient_flow

ALPHA = 0.3
TIMES = np.outer(RATES, 2.0 ** np.arange(8)) / 4


def made_up(power, law="derived"):
    """A descent that lies 0.01 x rate^power off the flow in a, at every time."""
    flows = [gradient_flow(ALPHA, times, law) for times in TIMES]
    a = np.stack([flow.a + 0.01 * rate**power for flow, rate in zip(flows, RATES, strict=True)])
    b = np.stack([flow.b for flow in flows])
    right = 1 / (1 + np.exp(a) + np.exp(b))
    return Descent(ALPHA, TIMES, right, np.exp(b) * right, 0.5 * TIMES**-0.5)


def test_margins_are_read_from_probabilities():
    flow = gradient_flow(ALPHA, TIMES[0])
    a, b = made_up(0.0).margins
    assert a[0] == pytest.approx(flow.a + 0.01)
    assert b[0] == pytest.approx(flow.b)


@pytest.mark.parametrize("power", [1.0, 2.0])
def test_the_order_is_the_power_of_the_rate(power):
    assert orders(made_up(power)) == pytest.approx([power, power], abs=1e-6)


def test_an_error_of_first_order_is_gone_at_step_size_zero():
    assert at_zero_step(made_up(1.0), "derived") == pytest.approx(0.0, abs=1e-9)
    assert at_zero_step(made_up(0.0), "derived") == pytest.approx(0.01)
    apart = gradient_flow(ALPHA, TIMES[1][:-1]), gradient_flow(ALPHA, TIMES[1][:-1], "printed")
    most = max(np.abs(apart[0].a - apart[1].a).max(), np.abs(apart[0].b - apart[1].b).max())
    assert at_zero_step(made_up(1.0), "printed") == pytest.approx(most, abs=1e-9)
    assert at_zero_step(made_up(1.0, "printed"), "printed") == pytest.approx(0.0, abs=1e-9)


def test_slopes():
    found = descent_slope(made_up(1.0))
    assert found is not None
    assert found.slope == pytest.approx(-0.5)
    short = made_up(1.0)
    assert descent_slope(Descent(ALPHA, short.time[:, :4], *(short.right[:, :4],) * 3)) is None
    flow = flow_slope(ALPHA)
    assert flow.low < flow.slope < flow.high < -0.495


def test_the_full_matrix_off_by_hand():
    right, noise = np.array([[0.5, 0.69]] * 3), np.array([[0.4, 0.305]] * 3)
    one = Descent(ALPHA, TIMES[:, :2], right, noise, noise)
    assert off_full(one) == pytest.approx(0.01)


def test_a_short_run_is_analysed(tmp_path):
    """Four doublings: descent is still on its way, the flow's claims do not depend on it."""
    findings = run_study(study("truncation/rank-one-noise"), "smoke", Store(tmp_path), workers=1)
    verdicts = {one.claim.id.rpartition("/")[2]: one.verdict for one in findings.claims}
    assert {name for name, verdict in verdicts.items() if verdict == "reproduced"} >= {
        "rank-one-forgets", "flow-slope", "b-limit", "a-falls",
    }  # fmt: skip
    assert verdicts["descent-slope"] == "not measured"
    assert verdicts["full-noise"] == verdicts["a-constant"] == "not reproduced"
    assert len(findings.figures) == 4
