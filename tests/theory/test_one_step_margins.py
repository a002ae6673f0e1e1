from math import log, sqrt

import numpy as np
import pytest

from anchorlab.rng import generator
from anchorlab.theory.one_step import feedforward_gradient, value_gradient
from anchorlab.theory.one_step_margins import (
    alpha_hat,
    attention_bound,
    attention_spread,
    draw_margins,
    feedforward_bound,
    feedforward_spread,
    repeated_token,
    shares_of,
)
from anchorlab.theory.uniform_recall import UniformRecall
from tests.theory.enumerated_recall import enumerate_recall


@pytest.mark.parametrize("block", [1 << 22, 12 * 70])
def test_margins_are_those_of_one_gradient_step(monkeypatch, block):
    monkeypatch.setattr("anchorlab.theory.uniform_recall._BLOCK_TOKENS", block)  # draws that lie across blocks too
    law, samples, draws = UniformRecall(6, 12, 0.4), 50, 4
    shares = np.concatenate([shares_of(law.draw(generator(0, "test"), 2).tokens, 7), repeated_token(law)])
    found = draw_margins(law, samples, draws, shares, generator(0, "margins"))
    blocks = list(law.blocks(generator(0, "margins"), samples * draws))
    tokens = np.concatenate([one.tokens for one in blocks], axis=1)
    targets = np.concatenate([one.targets for one in blocks])
    for draw in range(draws):
        rows = slice(draw * samples, (draw + 1) * samples)
        sample = type(blocks[0])(tokens[:, rows], targets[rows], targets[rows])
        feedforward = -feedforward_gradient(sample, 6)
        attention = shares @ -value_gradient(sample, 6).T
        assert found.feedforward[draw] == pytest.approx(feedforward[-1] - feedforward[:-1].max())
        assert found.attention[draw] == pytest.approx(attention[:, -1] - attention[:, :-1].max(axis=1))
        away = found.noise_logit[draw] - attention[:, -1]  # the constant common to all logits
        overlap = sample.counts(6).mean(axis=0) / 12 @ shares.T
        assert away == pytest.approx(overlap / 7)


def test_spreads_by_enumeration():
    law, everything = UniformRecall(5, 5, 0.3), enumerate_recall(5, 5, 0.3)
    shares = np.array([0.3, 0.05, 0.25, 0.1, 0.12, 0.18])
    values = (everything.targets == 5) * (everything.counts @ shares) / 5
    mean = everything.mean(values)
    found = attention_spread(law, 16, shares)
    assert found.mean == pytest.approx(mean)
    assert found.deviation == pytest.approx(sqrt(everything.mean((values - mean) ** 2) / 16))
    answered = everything.targets == 5
    found = feedforward_spread(law, 9)
    assert found.mean == pytest.approx(everything.mean(answered))
    assert found.deviation == pytest.approx(sqrt(everything.mean((answered - 0.3) ** 2) / 9))


def test_alpha_hat_by_hand():
    law = UniformRecall(4, 8, 0.5)
    assert alpha_hat(law, np.array([[0.5, 0.5, 0, 0, 0], [0.5, 0.25, 0, 0, 0.25]])).tolist() == [0.5, 0.4375]


def test_the_repeated_token():
    assert repeated_token(UniformRecall(4, 8, 0.5)).tolist() == [[0.125, 0.875, 0, 0, 0]]


def test_bounds_by_hand():
    law = UniformRecall(4, 8, 0.5)
    logarithm = log(2 * 5 / 0.1)
    assert feedforward_bound(law, 25, 0.1) == pytest.approx(sqrt(logarithm) / 5)
    assert attention_bound(law, 25, 0.1) == pytest.approx(sqrt((1 / 32 + 1 / 16) * logarithm) / 5 + logarithm / 25)
