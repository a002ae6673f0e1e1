"""The noisy associative memory: descent of many at once, and its gradient flow in two unknowns and whole."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

from anchorlab.engine import train
from anchorlab.errors import SpecError
from anchorlab.models import AssociativeSpec
from anchorlab.rng import generator
from anchorlab.runs import Store
from anchorlab.tasks import task
from anchorlab.theory import Margins, a_offset, b_limit, gradient_flow, lemma_a_offset, rank_one_coefficient
from anchorlab.theory.associative_descent import Memories, draw_memories
from anchorlab.theory.associative_flow import memory_flow
from anchorlab.theory.rank_one_flow import TIME_UNIT
from anchorlab.training import SGD, FixedSample, Recipe, initialise


def memories_of(ensemble):
    """Ours of an ensemble's weights; rows are vectors there, so its matrix is the transpose."""
    weights = {name: value.double().numpy() for name, value in ensemble.weights.items()}
    W = weights["memory.W_F"].swapaxes(1, 2)
    return Memories(W, weights["embed.W_E"], weights["unembed.W_U"].swapaxes(1, 2))


def test_it_is_what_training_does(tmp_path):
    law, spec = task("associative/noisy", inputs=3, alpha=0.03), AssociativeSpec(width=5)
    recipe = Recipe(
        data=FixedSample(size=3), optimiser=SGD(learning_rate=2.0), batch=3, duration=30, precision="float64"
    )
    run = train(law, spec, recipe, seeds=2, store=Store(tmp_path))
    start = memories_of(initialise(spec, law.shape, [0, 1], dtype=torch.float64))
    found = start.descend(alpha=0.03, rate=2.0, steps=30)
    np.testing.assert_allclose(found.weights, memories_of(run.ensemble()).weights, atol=1e-6)
    assert np.abs(found.weights - start.weights).max() > 0.1


def test_losses_by_hand():
    """Scores 2 and 0 of two inputs: with the basis as embeddings, W is the matrix of scores itself."""
    W = np.zeros((1, 3, 3))
    W[0, 0, 0], W[0, 1, 1] = 3.0, 1.0
    one = Memories(W, np.eye(3)[None, :2], np.eye(3)[None])
    exact = [np.log(1 + 2 * np.exp(-score)) for score in (3.0, 1.0)]
    assert one.pure_label_loss().tolist() == pytest.approx([np.mean(exact)])
    assert one.pure_label_loss(rank=1).tolist() == pytest.approx([np.mean([exact[0], np.log(3)])])


def test_the_start_is_that_of_the_paper():
    drawn = draw_memories(generator(0, "test"), runs=200, inputs=3, width=8)
    assert (drawn.inputs.shape, drawn.outputs.shape) == ((200, 3, 8), (200, 4, 8))
    for vectors in (drawn.inputs, drawn.outputs):
        assert np.linalg.norm(vectors, axis=2) == pytest.approx(np.ones(vectors.shape[:2]))
        assert abs(float(vectors.mean())) < 0.02
    assert float(drawn.weights.var()) == pytest.approx(1 / 8, rel=0.05)


# The gradient flow of the noisy associative memory itself, on every score.
def probabilities(W):
    """P(y | x) of scores `[output input]`."""
    odds = np.exp(W)
    return odds / odds.sum(axis=0)


def matrix_flow(inputs, alpha, times):
    """The flow of the mean cross-entropy from zero: `[time output input]`, times in units of the number of inputs."""
    law = np.vstack([(1 - alpha) * np.eye(inputs), np.full(inputs, alpha)])

    def change(_, state):
        return (law - probabilities(state.reshape(law.shape))).ravel()

    done = solve_ivp(change, (0, times[-1] + 1), np.zeros(law.size), "DOP853", t_eval=times, rtol=1e-10, atol=1e-12)
    return done.y.T.reshape(-1, *law.shape)


# Which singular value stores the noise: the flow in two unknowns against the flow of the whole matrix.
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


def test_two_inputs_are_those_of_theorem_2_and_more_have_their_ratio_in_the_long_run():
    two, theorem = memory_flow(2, 0.25, TIMES), gradient_flow(0.25, TIMES * 2 / TIME_UNIT)
    assert two.a == pytest.approx(theorem.a, abs=1e-6)
    assert two.b == pytest.approx(theorem.b, abs=1e-6)
    # (n - 1) / sqrt(n + 1): below 1 for two inputs, 1 for three, above 1 from four on.
    late = np.array([1e3, 1e6])
    for inputs in (2, 3, 4, 9):
        flow = memory_flow(inputs, 0.3, late)
        slope = np.diff(flow.noise_value) / np.diff(flow.signal_value)
        assert float(slope[0]) == pytest.approx((inputs - 1) / (inputs + 1) ** 0.5, rel=0.01)


# The flow in two unknowns against the flow of the whole matrix, and its limits against the ODE itself.
FLOW_TIMES = np.array([0.0, 0.1, 0.5, 1.0, 3.0, 10.0, 100.0, 1000.0])


@pytest.mark.parametrize("alpha", [0.03, 0.25, 0.35, 0.7])
def test_two_unknowns_are_the_whole_matrix(alpha):
    W = matrix_flow(2, alpha, TIME_UNIT * FLOW_TIMES / 2)
    flow = gradient_flow(alpha, FLOW_TIMES)
    assert flow.a == pytest.approx(W[:, 1, 0] - W[:, 0, 0], abs=1e-6)
    assert flow.b == pytest.approx(W[:, 2, 0] - W[:, 0, 0], abs=1e-6)
    assert flow.noise == pytest.approx([probabilities(one)[2, 0] for one in W], abs=1e-7)


@pytest.mark.parametrize("alpha", [0.03, 0.3, 0.7])
def test_rank_one_is_that_of_the_singular_value_decomposition(alpha):
    W = matrix_flow(2, alpha, TIME_UNIT * FLOW_TIMES[1:] / 2)
    left, singular, right = np.linalg.svd(W)
    cut = singular[:, 0, None, None] * left[:, :, :1] * right[:, :1]
    expected = np.array([probabilities(one)[2] for one in cut])
    assert expected[:, 0] == pytest.approx(expected[:, 1], abs=1e-9)  # both inputs alike
    assert gradient_flow(alpha, FLOW_TIMES[1:]).rank_one_noise == pytest.approx(expected[:, 0], abs=1e-6)


def test_of_two_equal_matrices_the_greater_is_kept():
    """By hand: β₁ = 0.1 and β₂ = -1, so that only (1, 1, -2)ᵀ (1, 1) is left, with scores -1, -1, 2."""
    margins = Margins(np.array([1.0]), np.array([-0.2]), np.array([-0.1 + 3.0]))
    assert float(margins.rank_one_noise[0]) == pytest.approx(np.exp(2) / (np.exp(2) + 2 * np.exp(-1)))


def test_the_printed_law_is_equation_nine():
    alpha = 0.3

    def nine(_, state):
        a, b = np.exp(state)
        return [(2 - 2 * a) / (a + b + 1) - 2 + 2 * alpha, (2 - 8 * b) / (a + b + 1) - 2 + 10 * alpha]

    done = solve_ivp(nine, (0, FLOW_TIMES[-1] + 1), [0.0, 0.0], t_eval=FLOW_TIMES, rtol=1e-10, atol=1e-12)
    flow = gradient_flow(alpha, FLOW_TIMES, "printed")
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


def test_limits_in_numbers_and_where_the_lemma_is_off_its_own_equation():
    assert b_limit(0.25) == pytest.approx(-np.log(3))
    assert a_offset(0.25) == pytest.approx(-np.log(2.25))
    assert a_offset(0.25, "printed") == pytest.approx(-np.log(2.7))
    assert lemma_a_offset(0.25) == pytest.approx(-np.log(2.625))
    assert rank_one_coefficient(0.25) == pytest.approx(2 / 3)
    # 18/5 and 4 - 2 alpha agree at alpha = 0.2 alone.
    assert lemma_a_offset(0.2) == pytest.approx(a_offset(0.2, "printed"))
    far = gradient_flow(0.35, np.array([1e6]), "printed").a[0] + np.log(1e6)
    assert far - lemma_a_offset(0.35) == pytest.approx(np.log(3.3 / 3.6), abs=1e-3)


REFUSED = [
    (lambda: memory_flow(1, 0.3, TIMES), "inputs: 1 have no other output"),
    (lambda: memory_flow(3, 1.0, TIMES), "alpha: 1.0 is not one number between"),
    (lambda: memory_flow(3, 0.3, TIMES[::-1]), "time: does not ascend"),
    *((lambda ask=ask, alpha=alpha: ask(alpha), r"^alpha: .* is not one number between 0 and 1")
      for alpha in (0.0, 1.0, -0.1) for ask in (b_limit, a_offset, lemma_a_offset, rank_one_coefficient)),
    *((lambda alpha=alpha: gradient_flow(alpha, FLOW_TIMES), r"^alpha:") for alpha in (0.0, 1.0, -0.1)),
    *((lambda times=times: gradient_flow(0.3, np.array(times)), r"^time: does not ascend")
      for times in ([], [1.0, 1.0], [2.0, 1.0], [-1.0, 1.0], [0.0], [0.0, math.nan, 1.0], [0.0, math.inf])),
]  # fmt: skip


@pytest.mark.parametrize(("ask", "message"), REFUSED)
def test_what_has_no_flow_is_named(ask, message):
    with pytest.raises(SpecError, match=message):
        ask()
