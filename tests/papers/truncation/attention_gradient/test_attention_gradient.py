"""The gradient of the key-query matrix, on projections made by hand."""

from math import log

import numpy as np
import pytest

from anchorlab.papers.truncation.attention_gradient import attention_gradient, projections
from anchorlab.papers.truncation.attention_gradient.attention_gradient import STUDY, Seen
from anchorlab.papers.truncation.attention_gradient.projections import Gradient, measure, measure_with_noise
from anchorlab.rng import generator
from anchorlab.studies.claim import judge
from anchorlab.theory import LeadingOrder, uniform_recall
from anchorlab.theory.attention_gradient import first_step, key_query_gradient, measured_first_step, with_more_noise
from anchorlab.theory.uniform_recall import Sequences, UniformRecall
from tests.papers.hand_made_runs import seen_by_hand, student, values_of, verdicts_of


def made(tokens: int, noise: float, trigger: float, other: float) -> Gradient:
    return Gradient(UniformRecall(tokens, 16 * tokens, 0.5), *(np.full(2, one) for one in (noise, trigger, other)))


def seen_of(by_tokens, by_share=None, printed=None):
    return seen_by_hand(
        Seen, by_tokens=by_tokens, by_share=by_share or {}, printed=printed or made(65, -1e-5, 3e-7, 1e-7)
    )


@pytest.mark.slow
def test_claims_of_projections_made_by_hand():
    by_tokens = [made(n, -0.0625 / n**2, 0.06 / n**3, 0.06 / n**3) for n in (100, 200, 400)]
    there = Gradient(attention_gradient.PRINTED, np.zeros(2), np.zeros(2), np.array([0.01, 0.03]) / 65**3)
    seen = seen_of(by_tokens, by_share={0.0: -1e-6, 3.0: 0.3 / 100**2}, printed=there)
    # -α²(1 - α)α = -1/16 for α = 1/2; what is left out of the leading order falls as 1/N
    verdicts = verdicts_of(STUDY, seen)
    assert (verdicts.pop("uniform"), verdicts.pop("others-attended-as-trained")) == (
        "contradicted",
        "agrees at small scale",
    )
    assert verdicts == {
        one.name: "reproduced" if one.exact else "agrees at our sizes" for one in STUDY.claims if one.name in verdicts
    }
    (own,) = (
        one for one in STUDY.judge(seen, "paper") if one.scope == "own"
    )  # appendix A.2 does not speak of this size
    assert own.claim.id.endswith("/others-attended-as-trained") and own.agrees
    n, t = 400, 6400
    noise, trigger = -0.25 / n**2, (1 / n + 1 / t) * (1 / t + 0.25 / n**2)  # over η α (α - p)
    assert values_of(STUDY, seen) == {
        "noise-avoided": pytest.approx(-0.0625),
        "noise-order": pytest.approx(-2),
        "noise-leading": pytest.approx(1, abs=0.02),
        "others-attended": pytest.approx(0.06),
        "others-attended-as-trained": pytest.approx(0.02),
        "others-order": pytest.approx(-3),
        "uniform-where-long": pytest.approx(1.1, abs=0.01),  # (1/40 + 1/4) over 1/4, but for 1/N
        "uniform": pytest.approx(-(n - 1) * trigger / (noise + trigger)),
        "three-speeds": pytest.approx(0, abs=0.02),
        "feedforward-dominates": pytest.approx(1 / 100, rel=0.1),  # α / N over α
        "others-near-zero": pytest.approx(-1, abs=0.02),
        "stays-below-alpha": 1.0,
        "logarithmic-rate": pytest.approx(log(64) * (0.1 - 1 / 65) - log(64 / 9)),  # of N = 64, alpha = 0.1
        "term-a": pytest.approx(0, abs=0.05),
        "opposite-with-more-noise": pytest.approx(0.3),
    }


def test_batches_of_every_size_are_drawn_together():
    """The largest mean is that of 10 tokens; in the second batch alone it is that of 20."""
    small, large = UniformRecall(10, 160, 0.5), UniformRecall(20, 320, 0.5)
    noise = [np.array([-1.0, -3.0]) / 100, np.array([-4.0, -2.0]) / 400]
    seen = seen_of([Gradient(law, one, one, one) for law, one in zip((small, large), noise, strict=True)])
    avoided = attention_gradient.noise_avoided(seen)
    assert avoided.value == pytest.approx(-2) and avoided.units == pytest.approx((-1, -2))
    assert avoided.interval == student(-2, -1, -2)
    assert len(attention_gradient.noise_leading(seen).units) == 2


def test_tokens_of_one_order_are_attended_to_uniformly_and_alike_far_above_n_squared(monkeypatch):
    seen = seen_of([made(100, -1e-5, 3e-7, 1e-7)])
    uniform = next(one for one in STUDY.claims if one.name == "uniform")
    for share, verdict in ((1.9, "reproduced"), (2.1, "contradicted"), (0.49, "contradicted")):
        orders = LeadingOrder(noise=-1.0, trigger=share, other=1.0)
        monkeypatch.setattr(projections, "leading_order", lambda law, rate, orders=orders: orders)
        found = judge(STUDY.claim(uniform), uniform(seen), "quick")
        assert (found.value, found.verdict, found.detail) == (share, verdict, "3 drawn")
    # the trigger's part that falls as 1 / (N T) is as large as the other at T = N² / (α (1 - α)) = 4 N²
    seen = seen_of([made(1000, -1e-5, 3e-7, 1e-7)])
    ratios = {}
    for long in (4, 40, 400):
        monkeypatch.setattr(attention_gradient, "LONG", long)
        ratios[long] = attention_gradient.uniform_where_long(seen)
    assert ratios == pytest.approx({4: 2, 40: 1.1, 400: 1.01}, rel=0.01)


def test_claims_fail_where_attention_seeks_the_noise():
    by_tokens = [made(n, 0.0625 / n**2, 0.06 / n**2, -0.06 / n**3) for n in (100, 200, 400)]
    there = Gradient(attention_gradient.PRINTED, np.zeros(2), np.zeros(2), np.array([0.008, 0.0095]) / 65**3)
    seen = seen_of(by_tokens, by_share={3.0: -1e-6}, printed=there)
    verdicts = verdicts_of(STUDY, seen)
    assert {name for name, one in verdicts.items() if one == "not measured"} == {
        "noise-order", "others-order", "three-speeds",
    }  # fmt: skip
    assert {name for name, one in verdicts.items() if one == "differs at our sizes"} == {
        "noise-avoided", "noise-leading", "others-attended", "opposite-with-more-noise",
    }  # fmt: skip
    (own,) = (one for one in STUDY.judge(seen, "paper") if one.scope == "own")
    assert own.claim.id.endswith("/others-attended-as-trained") and not own.agrees


def test_a_small_vocabulary_or_a_large_rate_breaks_the_assumptions(monkeypatch):
    """With 8 tokens W_V has a tenth of W_F's part; passing the target takes more than the safe rate."""
    values = values_of(STUDY, seen_of([made(n, -1e-2, 1e-4, 1e-4) for n in (8, 12, 16)]))
    assert values["feedforward-dominates"] > 0.05
    monkeypatch.setattr(attention_gradient, "safe_rate", lambda alpha: 3 / (alpha * (1 - alpha)))
    values = values_of(STUDY, seen_of([made(n, -1e-2, 1e-4, 1e-4) for n in (8, 12, 16)]))
    assert values["stays-below-alpha"] < 1


def test_orders_of_the_part_that_predicts_ordinary_tokens(monkeypatch):
    seen = seen_of([made(n, -1e-2, 1e-4, 1e-4) for n in (8, 16, 32)])
    for noise, ordinary, apart in ((-3, -4, 0), (-2.5, -4, 0.5), (-3, -3, 1)):

        def pull(law, rate, noise=noise, ordinary=ordinary):
            return np.full((law.tokens + 1,) * 2, -(float(law.tokens) ** ordinary)) * (
                [1] * law.tokens + [0]
            ) + np.array([0.0] * law.tokens + [float(law.tokens) ** noise])

        monkeypatch.setattr(attention_gradient, "pull_by_output", pull)
        assert attention_gradient.term_a(seen).value == pytest.approx(apart, abs=1e-9)


def test_the_largest_of_the_noise_counts_and_attention_turns_to_it_where_it_is_frequent():
    one_off = seen_of([made(100, 1e-9, 1e-7, 1e-7), made(200, -1e-5, 1e-9, -1e-9), made(400, -1e-6, 1e-9, 2e-9)])
    found = values_of(STUDY, one_off)
    assert found["noise-avoided"] == pytest.approx(1e-9 * 100**2)
    assert found["others-attended"] == pytest.approx(-1e-9 * 200**3)
    uniform = next(one for one in STUDY.claims if one.name == "uniform")
    assert uniform(one_off).detail == "0.5 drawn"  # at the largest N alone
    # it occurs α times in N without more of it, so that it is as frequent as others with (1 - α) times more
    law = UniformRecall(32, 512, 0.5)
    avoided, sought = (measure_with_noise(law, share, samples=1500) for share in (0.2, 0.9))
    assert avoided < 0 < sought
    found = measure(UniformRecall(8, 24, 0.5), batches=5, batch=40)
    assert len(set(found.noise.tolist())) == 5
    assert np.abs(found.noise + found.trigger + 7 * found.other).max() < 1e-15
    assert found.error("noise") == pytest.approx(np.std(found.noise, ddof=1) / np.sqrt(5))


def test_a_short_block_counts_as_much_as_its_sequences(monkeypatch):
    """Seven sequences in blocks of three, three and one: each of the seven counts alike."""
    law = UniformRecall(8, 24, 0.5)
    monkeypatch.setattr(uniform_recall, "_BLOCK_TOKENS", 3 * law.length)

    def mean(blocks, weights):
        ones = [
            key_query_gradient(law, Sequences(one.tokens[:, [at]], one.outputs[[at]], one.targets[[at]]), weights)
            for one in blocks
            for at in range(one.targets.size)
        ]
        assert len(ones) == 7
        return np.mean(ones, axis=0)

    random = generator(0, "attention gradient", law.tokens, law.length, 0)
    expected = mean([law.draw(random, size) for size in (3, 3, 1)], first_step(law, 1.0))
    found = measure(law, batches=1, batch=7)
    assert [found.noise[0], found.trigger[0]] == pytest.approx([expected[-1], expected[0]], rel=1e-9)
    assert found.other[0] == pytest.approx(expected[1:-1].mean(), rel=1e-9)
    random = generator(0, "more noise", law.tokens, law.length, 90)
    noisy = [with_more_noise(law, law.draw(random, size), 0.9 / law.tokens, random) for size in (3, 3, 1)]
    expected = mean(noisy, measured_first_step(law, noisy[0], 1.0))
    assert measure_with_noise(law, 0.9, samples=7) == pytest.approx(expected[law.noise_token], rel=1e-9)
