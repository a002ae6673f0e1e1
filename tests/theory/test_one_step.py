"""The first steps of the one-layer model, by counting, enumeration and autograd; and powers fitted to measurements."""

import re
from math import log, sqrt

import numpy as np
import pytest
import torch
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.rng import generator
from anchorlab.theory import PowerLaw, attention_gradient, fit_power_law, one_layer, one_step, one_step_margins
from anchorlab.theory.attention_gradient import first_step, key_query_gradient, leading_order, with_more_noise
from anchorlab.theory.noise_logit import noise_logits, safe_rate, target_logit
from anchorlab.theory.one_step import ENTRIES, TABLE_2, Moments, value_gradient, value_moments
from anchorlab.theory.one_step_margins import alpha_hat, attention_bound, attention_spread, draw_margins, repeated_token
from anchorlab.theory.uniform_recall import Sequences, UniformRecall
from tests.theory.enumerated_recall import enumerate_recall


class OneLayer:
    def __init__(self, outputs: int, width: int) -> None:
        random = torch.Generator().manual_seed(0)

        def orthonormal() -> Tensor:
            drawn = torch.randn(width, outputs, generator=random, dtype=torch.float64)
            return torch.linalg.qr(drawn).Q.T  # [token width]

        self.embedding, self.unembedding = orthonormal(), orthonormal()
        self.key_query, self.value, self.feedforward = (
            torch.zeros(width, width, dtype=torch.float64, requires_grad=True) for _ in range(3)
        )

    def logits(self, sample: Sequences) -> Tensor:
        x = self.embedding[torch.from_numpy(sample.tokens.T.astype("int64"))]  # [sample position width]
        last = x[:, -1]
        scores = torch.einsum("bd,de,bte->bt", last, self.key_query.T, x)  # x_Tᵀ W_KQᵀ x_t = x_tᵀ W_KQ x_T
        attended = torch.einsum("bt,bte->be", scores.softmax(dim=1), x) @ self.value.T
        return (attended + last @ self.feedforward.T) @ self.unembedding.T

    def loss(self, sample: Sequences) -> Tensor:
        return torch.nn.functional.cross_entropy(self.logits(sample), torch.from_numpy(sample.targets))

    def projected(self, matrix: Tensor) -> Tensor:
        """W_U(j)ᵀ M W_E(k) `[output token]`."""
        return self.unembedding @ matrix @ self.embedding.T

    def set(self, matrix: Tensor, projections: Tensor) -> None:
        """Gives a matrix these projections `[output token]`."""
        with torch.no_grad():
            matrix.copy_(self.unembedding.T @ projections @ self.embedding)


TOKENS, LENGTH, ALPHA = 4, 6, 0.3
LAW = UniformRecall(TOKENS, LENGTH, ALPHA)
EVERYTHING = enumerate_recall(TOKENS, LENGTH, ALPHA)
ROWS = {"noise": TOKENS, "trigger": 0, "other": 1}
COLUMNS = {"noise": TOKENS, "trigger": 0, "other": 2, "same": 1}


def test_gradients_by_counting_are_those_of_autograd():
    sample = UniformRecall(6, 9, ALPHA).draw(generator(0, "sample"), 40)
    model = OneLayer(outputs=7, width=11)
    model.loss(sample).backward()
    feedforward = model.projected(model.feedforward.grad)
    assert feedforward[:, 0].tolist() == pytest.approx(one_step.feedforward_gradient(sample, 6))
    assert feedforward[:, 1:].abs().max() < 1e-12
    assert model.projected(model.value.grad).numpy() == pytest.approx(value_gradient(sample, 6), abs=1e-12)
    assert model.key_query.grad.abs().max() < 1e-12


def contributions(output: int, token: int) -> np.ndarray:
    error = 1 / (TOKENS + 1) - (EVERYTHING.targets == output)
    return error * EVERYTHING.counts[:, token] / LENGTH


def check_moments(found: Moments, values: np.ndarray) -> None:
    mean = EVERYTHING.mean(values)
    assert found.mean == pytest.approx(mean)
    assert found.variance == pytest.approx(EVERYTHING.mean((values - mean) ** 2))
    assert found.reach == pytest.approx(np.abs(values - mean).max())


@pytest.mark.parametrize("entry", ENTRIES, ids="-".join)
def test_exact_moments_of_table_2_by_enumeration(entry):
    check_moments(value_moments(LAW, entry), contributions(ROWS[entry[0]], COLUMNS[entry[1]]))


@pytest.mark.parametrize(("name", "output"), [("noise", TOKENS), ("other", 1), ("other", 0)])
def test_exact_moments_of_lemma_d1_by_enumeration(name, output):
    check_moments(one_step.feedforward_moments(LAW, name), 1 / (TOKENS + 1) - (EVERYTHING.targets == output))


@pytest.mark.parametrize(
    ("tokens", "length", "near"), [(256, 4096, 0.05), (1024, 1024, 0.02), (8192, 256, 0.04)], ids=str
)
@pytest.mark.parametrize("entry", ENTRIES, ids="-".join)
def test_closed_forms_are_the_leading_order(entry, tokens, length, near):
    exact, closed = value_moments(UniformRecall(tokens, length, ALPHA), entry), TABLE_2[entry]
    assert closed.mean(tokens, length, ALPHA) == pytest.approx(exact.mean, rel=near)
    assert closed.variance(tokens, length, ALPHA) == pytest.approx(exact.variance, rel=near)
    assert closed.reach == pytest.approx(exact.reach, rel=near)


@pytest.mark.parametrize("entry", ENTRIES, ids="-".join)
def test_what_is_written_is_what_is_computed(entry):
    closed, values = TABLE_2[entry], {"α": 0.3, "T": 50.0, "N": 7.0}

    def value(text: str) -> float:
        text = text.translate(str.maketrans({"²": "**2", "³": "**3", "⁴": "**4", "[": "(", "]": ")"}))
        return float(eval(re.sub(r"(?<=[\dαTN)])(?=[αTN(])", "*", text), {}, values))

    assert value(closed.mean_text) == pytest.approx(closed.mean(7, 50, 0.3))
    assert value(closed.variance_text) == pytest.approx(closed.variance(7, 50, 0.3))


@pytest.mark.parametrize("block", [1 << 22, 12 * 70])
def test_margins_are_those_of_one_gradient_step(monkeypatch, block):
    monkeypatch.setattr("anchorlab.theory.uniform_recall._BLOCK_TOKENS", block)  # draws that lie across blocks too
    law, samples, draws = UniformRecall(6, 12, 0.4), 50, 4
    shares = np.concatenate(
        [one_step_margins.shares_of(law.draw(generator(0, "test"), 2).tokens, 7), repeated_token(law)]
    )
    found = draw_margins(law, samples, draws, shares, generator(0, "margins"))
    blocks = list(law.blocks(generator(0, "margins"), samples * draws))
    tokens = np.concatenate([one.tokens for one in blocks], axis=1)
    targets = np.concatenate([one.targets for one in blocks])
    for draw in range(draws):
        rows = slice(draw * samples, (draw + 1) * samples)
        sample = type(blocks[0])(tokens[:, rows], targets[rows], targets[rows])
        feedforward = -one_step.feedforward_gradient(sample, 6)
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
    found = one_step_margins.feedforward_spread(law, 9)
    assert found.mean == pytest.approx(everything.mean(answered))
    assert found.deviation == pytest.approx(sqrt(everything.mean((answered - 0.3) ** 2) / 9))


def test_shares_bounds_and_the_noise_s_logit_by_hand():
    law = UniformRecall(4, 8, 0.5)
    assert alpha_hat(law, np.array([[0.5, 0.5, 0, 0, 0], [0.5, 0.25, 0, 0, 0.25]])).tolist() == [0.5, 0.4375]
    assert repeated_token(law).tolist() == [[0.125, 0.875, 0, 0, 0]]
    logarithm = log(2 * 5 / 0.1)
    assert one_step_margins.feedforward_bound(law, 25, 0.1) == pytest.approx(sqrt(logarithm) / 5)
    assert attention_bound(law, 25, 0.1) == pytest.approx(sqrt((1 / 32 + 1 / 16) * logarithm) / 5 + logarithm / 25)
    # The noise's logit against the exact step of W_F, and its learning rates against the steps themselves.
    law = UniformRecall(50, 40, 0.3)
    assert noise_logits(50, 0.3, rate=2.0, steps=1)[1] == pytest.approx(first_step(law, 2.0).feedforward[-1])
    odds = np.exp(target_logit(20, 0.3))
    assert odds / (20 + odds) == pytest.approx(0.3)
    # far above the target p = 1, far below it p = 0
    first = 1e4 * (0.3 - 1 / 51)
    assert noise_logits(50, 0.3, rate=1e4, steps=3) == pytest.approx([0, first, first - 7e3, first - 4e3])
    assert noise_logits(20, 0.3, rate=1.0, steps=400)[-1] == pytest.approx(target_logit(20, 0.3))


@pytest.mark.parametrize("alpha", [0.1, 0.3, 0.45])
def test_the_safe_rate_is_the_largest_that_never_passes_the_target(alpha):
    tokens, rate = 20, 1 / (alpha * (1 - alpha))  # near the target a step of 1 / p' ends at the target
    assert safe_rate(alpha) == pytest.approx(rate)
    target = target_logit(tokens, alpha)
    assert (noise_logits(tokens, alpha, 0.99 * rate, 400) < target + 1e-9).all()
    assert (noise_logits(tokens, alpha, 1.5 * rate, 400) > target + 1e-9).any()


def expected_loss(model: OneLayer, law: UniformRecall, sample: Sequences) -> Tensor:
    """The cross-entropy averaged over the target given y."""
    targets = torch.nn.functional.one_hot(torch.from_numpy(sample.outputs), law.tokens + 1).double() * (1 - law.alpha)
    targets[:, law.noise_token] += law.alpha
    return torch.nn.functional.cross_entropy(model.logits(sample), targets)


def test_the_gradient_is_that_of_autograd():
    law = UniformRecall(5, 8, 0.3)
    sample = law.draw(generator(0, "sample"), 30)
    random = generator(0, "weights")
    model = OneLayer(outputs=6, width=9)
    for scale in (0.0, 2.0):  # uniform attention, and not
        weights = one_layer.OneLayer(random.normal(size=6), random.normal(size=(6, 6)), scale * random.normal(size=6))
        model.set(model.value, torch.from_numpy(weights.value))
        model.set(model.feedforward, torch.from_numpy(weights.feedforward)[:, None] * torch.eye(6)[0].double())
        with torch.no_grad():
            score = torch.from_numpy(weights.key_query)[:, None] * torch.eye(6)[0].double()
            model.key_query.copy_(model.embedding.T @ score @ model.embedding)
        gradients = torch.autograd.grad(
            expected_loss(model, law, sample), [model.feedforward, model.value, model.key_query]
        )
        forward, value = (-model.projected(one) for one in gradients[:2])
        score = -model.embedding @ gradients[2] @ model.embedding.T  # W_E(k)ᵀ (-grad) W_E(l)
        found = weights.descent(sample.counts(5) / 8, sample.outputs, 0.3)
        assert forward[:, 0].numpy() == pytest.approx(found.feedforward, abs=1e-12)
        assert value.numpy() == pytest.approx(found.value, abs=1e-12)
        assert score[:, 0].numpy() == pytest.approx(found.key_query, abs=1e-12)
        assert max(forward[:, 1:].abs().max(), score[:, 1:].abs().max()) < 1e-12
        if not scale:
            assert key_query_gradient(law, sample, weights) == pytest.approx(found.key_query)


def test_descent_on_all_matrices_is_that_of_autograd():
    law = UniformRecall(4, 12, 0.4)
    sample, model = law.draw(generator(0, "sample"), 50), OneLayer(outputs=5, width=7)
    matrices = [model.feedforward, model.value, model.key_query]
    for _ in range(40):
        gradients = torch.autograd.grad(expected_loss(model, law, sample), matrices)
        with torch.no_grad():
            for matrix, gradient in zip(matrices, gradients, strict=True):
                matrix -= 2.0 * gradient
    frozen = one_layer.train(law, sample, 2.0, at=(1, 2), feed_forward=False)
    assert not frozen[2].feedforward.any() and frozen[2].value.any() and frozen[2].key_query.any()
    found = one_layer.train(law, sample, 2.0, at=(0, 40))
    assert [*found] == [0, 40] and not any(one.any() for one in vars(found[0]).values())
    forward, value = (model.projected(one).detach().numpy() for one in matrices[:2])
    score = (model.embedding @ model.key_query @ model.embedding.T).detach().numpy()
    assert np.abs(score[:, 0]).max() > 0.01
    assert found[40].feedforward == pytest.approx(forward[:, 0], abs=1e-4)
    assert found[40].value == pytest.approx(value, abs=1e-4)
    assert found[40].key_query == pytest.approx(score[:, 0], abs=1e-4)


def test_the_first_step_follows_the_expected_gradient_and_drawn_sequences_come_to_it():
    tokens, length, alpha = 4, 5, 0.3
    everything = enumerate_recall(tokens, length, alpha)
    error = 1 / (tokens + 1) - (everything.targets[:, None] == np.arange(tokens + 1))
    expected = np.einsum("s,sj,sk->jk", everything.chance, error, everything.counts / length)
    found = first_step(UniformRecall(tokens, length, alpha), 2.0)
    assert found.feedforward.tolist() == pytest.approx(-2 * everything.mean(error))
    assert found.value == pytest.approx(-2 * expected)
    shares = everything.counts / length
    away = shares[:, :, None] * (
        np.eye(tokens + 1) - shares[:, None, :]
    )  # [sample l k] of 1/T sum_t 1{l} (x_t - mean)_k
    pull = attention_gradient.pull_by_output(UniformRecall(tokens, length, alpha), 2.0)
    assert pull == pytest.approx(np.einsum("s,jl,slk->jk", everything.chance, found.value, away), abs=1e-15)
    law = UniformRecall(6, 20, 0.4)
    drawn = law.draw(generator(0, "test"), 60_000)
    measured, exact = attention_gradient.measured_first_step(law, drawn, 2.0), first_step(law, 2.0)
    np.testing.assert_allclose(measured.feedforward, exact.feedforward, atol=0.02)
    np.testing.assert_allclose(measured.value, exact.value, atol=0.02)


def test_what_one_token_loses_the_others_gain_and_short_sequences_turn_their_sign():
    law = UniformRecall(8, 20, 0.4)
    gradient = key_query_gradient(law, law.draw(generator(0, "sample"), 100), first_step(law, 1.0))
    assert abs(gradient.sum()) < 1e-15
    closed = leading_order(law, 1.0)
    assert closed.noise + closed.trigger + 7 * closed.other == pytest.approx(0, abs=1e-15)
    signs = {length: leading_order(UniformRecall(64, length, 0.5), 1.0).other > 0 for length in (128, 4096)}
    assert signs == {128: False, 4096: True}
    law = UniformRecall(64, 128, 0.5)
    assert key_query_gradient(law, law.draw(generator(0, "short"), 2000), first_step(law, 1.0))[1:-1].mean() < 0


@pytest.mark.parametrize("alpha", [0.3, 0.6])
def test_closed_forms_against_draws(alpha):
    law = UniformRecall(256, 4096, alpha)
    drawn = law.draw(generator(0, "draw"), 1500)
    found, closed = key_query_gradient(law, drawn, first_step(law, 1.0)), leading_order(law, 1.0)
    assert found[-1] == pytest.approx(closed.noise, rel=0.05)
    assert found[0] == pytest.approx(closed.trigger, rel=0.1)
    assert found[1:-1].mean() == pytest.approx(closed.other, rel=0.08)


def test_noise_takes_the_place_of_tokens_that_tell_nothing():
    """Of 0 the trigger, 5 the noise: all but triggers and what follows them, at a share of 1."""
    law = UniformRecall(5, 6, 0.4)
    tokens = np.array([[1, 0, 2, 3, 4, 0]]).T
    before = Sequences(tokens, np.array([2]), np.array([2]))
    assert with_more_noise(law, before, 1.0, generator(0)).tokens.T.tolist() == [[5, 0, 2, 5, 5, 0]]
    assert with_more_noise(law, before, 0.0, generator(0)).tokens.T.tolist() == tokens.T.tolist()


@pytest.mark.untyped
def test_what_has_no_value_is_refused():
    for alpha in (1.0, np.array([0.1, 0.2])):
        with pytest.raises(SpecError, match=r"^alpha: .* is not one number between 0 and 1; give a probability"):
            safe_rate(alpha)


@pytest.mark.untyped
@pytest.mark.parametrize("entry", [("noise", "same"), ("trigger", "same"), ("others", "noise")])
def test_what_is_no_row_of_table_2_has_no_moments(entry):
    with pytest.raises(SpecError, match=r"^entry: .* is no row of Table 2; choose one of one_step\.ENTRIES"):
        value_moments(UniformRecall(5, 8, 0.3), entry)


def test_an_exact_power_is_found_and_told_from_a_correction():
    x = np.array([1.0, 2.0, 5.0, 100.0])
    wide = np.geomspace(1, 50, 6)
    corrected = fit_power_law(wide, 3.0 * wide**-0.5 * np.exp(-2.0 * wide**-1), correction=-1.0)
    for law in (fit_power_law(x, 3.0 * x**-0.5), corrected):
        assert (law.slope, law.factor) == pytest.approx((-0.5, 3.0))
        assert law.high - law.low < 1e-6
    whole = fit_power_law([1, 2, 4, 8], [2, 4, 8, 16])  # counts, in a list
    assert (whole.slope, whole.factor) == pytest.approx((1.0, 2.0))
    assert fit_power_law(np.array([1, 2, 4, 8]), np.array([1, 4, 16, 64]), correction=-1).slope == pytest.approx(2.0)


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
        ([1.0, 2.0, 3.0], [1.0, np.nan, 3.0], None, "y: has values that are not positive"),
        ([-1.0, 2.0, 3.0], [1.0, 1.0, 3.0], None, "x: has values that are not positive"),
        ([1.0, 2.0, np.inf], [1.0, 1.0, 3.0], None, "x: has values that are not positive and finite"),
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
