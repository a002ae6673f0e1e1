"""Which singular value stores the noise: the flow in two unknowns against the flow of the whole matrix."""

import numpy as np
import pytest

from anchorlab.errors import SpecError
from anchorlab.theory import gradient_flow
from anchorlab.theory.associative_flow import memory_flow
from anchorlab.theory.rank_one_flow import TIME_UNIT
from tests.theory.matrix_flow import matrix_flow, probabilities

TIMES = np.array([0.5, 3.0, 40.0, 600.0])


@pytest.mark.parametrize(("inputs", "alpha"), [(2, 0.3), (3, 0.03), (6, 0.002), (6, 0.4)])
def test_margins_singular_values_and_losses_are_those_of_the_matrix(inputs, alpha):
    W, flow = matrix_flow(inputs, alpha, TIMES), memory_flow(inputs, alpha, TIMES)
    assert flow.a == pytest.approx(W[:, 1, 0] - W[:, 0, 0], abs=1e-6)
    assert flow.b == pytest.approx(W[:, -1, 0] - W[:, 0, 0], abs=1e-6)
    for at, matrix in enumerate(W):
        left, values, right = np.linalg.svd(matrix, full_matrices=False)
        expected = sorted([*[flow.signal_value[at]] * (inputs - 1), flow.noise_value[at]], reverse=True)
        assert values == pytest.approx(expected, abs=1e-6)
        noise = int(np.abs(left[-1]).argmax())  # the one part that has a score for the noise
        rest = matrix - values[noise] * np.outer(left[:, noise], right[noise])
        for scores, loss in ((matrix, flow.loss[at]), (rest, flow.loss_without_noise[at])):
            assert loss == pytest.approx(-np.log(np.diagonal(probabilities(scores))).mean(), abs=1e-6)


def test_two_inputs_are_those_of_theorem_2():
    two, theorem = memory_flow(2, 0.25, TIMES), gradient_flow(0.25, TIMES * 2 / TIME_UNIT)
    assert two.a == pytest.approx(theorem.a, abs=1e-6)
    assert two.b == pytest.approx(theorem.b, abs=1e-6)


def test_in_the_long_run_the_ratio_depends_on_the_inputs_alone():
    """(n - 1) / sqrt(n + 1): below 1 for two inputs, 1 for three, above 1 from four on."""
    late = np.array([1e3, 1e6])
    for inputs in (2, 3, 4, 9):
        flow = memory_flow(inputs, 0.3, late)
        slope = np.diff(flow.noise_value) / np.diff(flow.signal_value)
        assert float(slope[0]) == pytest.approx((inputs - 1) / (inputs + 1) ** 0.5, rel=0.01)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1, 0.3, TIMES), "inputs: 1 have no other output"),
        ((3, 1.0, TIMES), "alpha: 1 is not between"),
        ((3, 0.3, TIMES[::-1]), "time: does not ascend"),
    ],
)
def test_what_cannot_be(arguments, message):
    with pytest.raises(SpecError, match=message):
        memory_flow(*arguments)
