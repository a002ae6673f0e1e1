import numpy as np
import pytest
import torch

from anchorlab.rng import generator
from anchorlab.theory.attention_gradient import (
    FirstStep,
    first_step,
    key_query_gradient,
    leading_order,
    measured_first_step,
    with_more_noise,
)
from anchorlab.theory.uniform_recall import Sequences, UniformRecall
from tests.theory.enumerated_recall import enumerate_recall
from tests.theory.one_layer_model import OneLayer


def test_the_gradient_is_that_of_autograd():
    law = UniformRecall(5, 8, 0.3)
    sample = law.draw(generator(0, "sample"), 30)
    random = generator(0, "weights")
    weights = FirstStep(random.normal(size=6), random.normal(size=(6, 6)))
    model = OneLayer(outputs=6, width=9)
    model.set(model.value, torch.from_numpy(weights.value))
    model.set(model.feedforward, torch.from_numpy(weights.feedforward)[:, None] * torch.eye(6)[0].double())
    targets = torch.zeros(30, 6, dtype=torch.float64)
    targets[torch.arange(30), torch.from_numpy(sample.outputs)] = 0.7
    targets[:, 5] = 0.3
    torch.nn.functional.cross_entropy(model.logits(sample), targets).backward()
    found = -model.embedding @ model.key_query.grad @ model.embedding.T  # W_E(k)ᵀ (-grad) W_E(l)
    assert found[:, 0].tolist() == pytest.approx(key_query_gradient(law, sample, weights), abs=1e-12)
    assert found[:, 1:].abs().max() < 1e-12


def test_the_first_step_follows_the_expected_gradient():
    tokens, length, alpha = 4, 5, 0.3
    everything = enumerate_recall(tokens, length, alpha)
    error = 1 / (tokens + 1) - (everything.targets[:, None] == np.arange(tokens + 1))
    expected = np.einsum("s,sj,sk->jk", everything.chance, error, everything.counts / length)
    found = first_step(UniformRecall(tokens, length, alpha), 2.0)
    assert found.feedforward.tolist() == pytest.approx(-2 * everything.mean(error))
    assert found.value == pytest.approx(-2 * expected)


def test_what_one_token_loses_the_others_gain():
    law = UniformRecall(8, 20, 0.4)
    gradient = key_query_gradient(law, law.draw(generator(0, "sample"), 100), first_step(law, 1.0))
    assert abs(gradient.sum()) < 1e-15
    closed = leading_order(law, 1.0)
    assert closed.noise + closed.trigger + 7 * closed.other == pytest.approx(0, abs=1e-15)


@pytest.mark.parametrize("alpha", [0.3, 0.6])
def test_closed_forms_against_draws(alpha):
    law = UniformRecall(256, 4096, alpha)
    drawn = law.draw(generator(0, "draw"), 1500)
    found, closed = key_query_gradient(law, drawn, first_step(law, 1.0)), leading_order(law, 1.0)
    assert found[-1] == pytest.approx(closed.noise, rel=0.05)
    assert found[0] == pytest.approx(closed.trigger, rel=0.1)
    assert found[1:-1].mean() == pytest.approx(closed.other, rel=0.08)


def test_short_sequences_turn_the_sign_of_the_other_tokens():
    signs = {length: leading_order(UniformRecall(64, length, 0.5), 1.0).other > 0 for length in (128, 4096)}
    assert signs == {128: False, 4096: True}
    law = UniformRecall(64, 128, 0.5)
    assert key_query_gradient(law, law.draw(generator(0, "short"), 2000), first_step(law, 1.0))[1:-1].mean() < 0


def test_a_step_on_drawn_sequences_comes_to_the_exact_one():
    law = UniformRecall(6, 20, 0.4)
    drawn = law.draw(generator(0, "test"), 60_000)
    measured, exact = measured_first_step(law, drawn, 2.0), first_step(law, 2.0)
    np.testing.assert_allclose(measured.feedforward, exact.feedforward, atol=0.02)
    np.testing.assert_allclose(measured.value, exact.value, atol=0.02)


def test_noise_takes_the_place_of_tokens_that_tell_nothing():
    """Of 0 the trigger, 5 the noise: all but triggers and what follows them, at a share of 1."""
    law = UniformRecall(5, 6, 0.4)
    tokens = np.array([[1, 0, 2, 3, 4, 0]]).T
    before = Sequences(tokens, np.array([2]), np.array([2]))
    assert with_more_noise(law, before, 1.0, generator(0)).tokens.T.tolist() == [[5, 0, 2, 5, 5, 0]]
    assert with_more_noise(law, before, 0.0, generator(0)).tokens.T.tolist() == tokens.T.tolist()
