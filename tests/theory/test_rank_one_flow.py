"""The flow in two unknowns against the flow of the whole matrix, and its limits against the ODE itself."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from anchorlab.errors import SpecError
from anchorlab.theory import Margins, a_offset, b_limit, gradient_flow, lemma_a_offset, rank_one_coefficient
from anchorlab.theory.rank_one_flow import TIME_UNIT
from tests.theory.matrix_flow import matrix_flow, probabilities

TIMES = np.array([0.0, 0.1, 0.5, 1.0, 3.0, 10.0, 100.0, 1000.0])


@pytest.mark.parametrize("alpha", [0.03, 0.25, 0.35, 0.7])
def test_two_unknowns_are_the_whole_matrix(alpha):
    W = matrix_flow(2, alpha, TIME_UNIT * TIMES / 2)
    flow = gradient_flow(alpha, TIMES)
    assert flow.a == pytest.approx(W[:, 1, 0] - W[:, 0, 0], abs=1e-6)
    assert flow.b == pytest.approx(W[:, 2, 0] - W[:, 0, 0], abs=1e-6)
    assert flow.noise == pytest.approx([probabilities(one)[2, 0] for one in W], abs=1e-7)


@pytest.mark.parametrize("alpha", [0.03, 0.3, 0.7])
def test_rank_one_is_that_of_the_singular_value_decomposition(alpha):
    W = matrix_flow(2, alpha, TIME_UNIT * TIMES[1:] / 2)
    left, singular, right = np.linalg.svd(W)
    cut = singular[:, 0, None, None] * left[:, :, :1] * right[:, :1]
    expected = np.array([probabilities(one)[2] for one in cut])
    assert expected[:, 0] == pytest.approx(expected[:, 1], abs=1e-9)  # both inputs alike
    assert gradient_flow(alpha, TIMES[1:]).rank_one_noise == pytest.approx(expected[:, 0], abs=1e-6)


def test_of_two_equal_matrices_the_greater_is_kept():
    """By hand: β₁ = 0.1 and β₂ = -1, so that only (1, 1, -2)ᵀ (1, 1) is left, with scores -1, -1, 2."""
    margins = Margins(np.array([1.0]), np.array([-0.2]), np.array([-0.1 + 3.0]))
    assert float(margins.rank_one_noise[0]) == pytest.approx(np.exp(2) / (np.exp(2) + 2 * np.exp(-1)))


@pytest.mark.parametrize("law", ["derived", "printed"])
def test_the_slopes_at_the_start_by_hand(law):
    """All three probabilities are 1/3: da/dt = -2 (1 - alpha), and db/dt = -2 + 4 alpha, or (9)'s -4 + 10 alpha."""
    alpha, step = 0.3, 1e-4
    flow = gradient_flow(alpha, np.array([step]), law)
    assert flow.a[0] / step == pytest.approx(-2 * (1 - alpha), abs=1e-3)
    assert flow.b[0] / step == pytest.approx({"derived": -2 + 4 * alpha, "printed": -4 + 10 * alpha}[law], abs=1e-3)


def test_the_printed_law_is_equation_nine():
    alpha = 0.3

    def nine(_, state):
        a, b = np.exp(state)
        return [(2 - 2 * a) / (a + b + 1) - 2 + 2 * alpha, (2 - 8 * b) / (a + b + 1) - 2 + 10 * alpha]

    done = solve_ivp(nine, (0, TIMES[-1] + 1), [0.0, 0.0], t_eval=TIMES, rtol=1e-10, atol=1e-12)
    flow = gradient_flow(alpha, TIMES, "printed")
    assert np.stack([flow.a, flow.b]) == pytest.approx(done.y, abs=1e-6)


@pytest.mark.parametrize("law", ["derived", "printed"])
@pytest.mark.parametrize("alpha", [0.03, 0.25, 0.3, 0.35])
def test_limits_are_where_the_flow_goes(alpha, law):
    late = np.array([1e5, 1e7])
    flow = gradient_flow(alpha, late, law)
    distances = np.abs([flow.a + np.log(late) - a_offset(alpha, law), flow.b - b_limit(alpha),
                        flow.rank_one_noise * np.sqrt(late) / rank_one_coefficient(alpha, law) - 1])  # fmt: skip
    assert distances[:, 1].max() < 1e-3
    assert (distances[:, 1] < np.maximum(distances[:, 0] / 5, 1e-7)).all()  # and on its way there


def test_limits_in_numbers():
    assert b_limit(0.25) == pytest.approx(-np.log(3))
    assert a_offset(0.25) == pytest.approx(-np.log(2.25))
    assert a_offset(0.25, "printed") == pytest.approx(-np.log(2.7))
    assert lemma_a_offset(0.25) == pytest.approx(-np.log(2.625))
    assert rank_one_coefficient(0.25) == pytest.approx(2 / 3)


def test_the_lemma_is_off_its_own_equation():
    """18/5 and 4 - 2 alpha agree at alpha = 0.2 alone."""
    assert lemma_a_offset(0.2) == pytest.approx(a_offset(0.2, "printed"))
    far = gradient_flow(0.35, np.array([1e6]), "printed").a[0] + np.log(1e6)
    assert far - lemma_a_offset(0.35) == pytest.approx(np.log(3.3 / 3.6), abs=1e-3)


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.1])
def test_alpha_outside_its_range_is_refused(alpha):
    for ask in (b_limit, a_offset, lemma_a_offset, rank_one_coefficient):
        with pytest.raises(SpecError, match=r"^alpha: .* not between 0 and 1"):
            ask(alpha)
    with pytest.raises(SpecError, match=r"^alpha:"):
        gradient_flow(alpha, TIMES)


@pytest.mark.parametrize("times", [[], [1.0, 1.0], [2.0, 1.0], [-1.0, 1.0]])
def test_times_that_do_not_ascend_are_refused(times):
    with pytest.raises(SpecError, match=r"^time: does not ascend"):
        gradient_flow(0.3, np.array(times))
