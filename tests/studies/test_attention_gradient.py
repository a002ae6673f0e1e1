"""The gradient of the key-query matrix, on projections made by hand."""

import numpy as np
import pytest

from anchorlab.studies import study
from anchorlab.studies.truncation.attention_gradient import STUDY, Gradient, Seen, measure
from anchorlab.theory.uniform_recall import UniformRecall
from tests.studies.hand_made_runs import values_of, verdicts_of


def made(tokens: int, noise: float, trigger: float, other: float) -> Gradient:
    return Gradient(UniformRecall(tokens, 16 * tokens, 0.5), *(np.full(2, one) for one in (noise, trigger, other)))


def test_claims_of_projections_made_by_hand():
    seen = Seen([made(n, -0.0625 / n**2, 0.06 / n**3, 0.06 / n**3) for n in (100, 200, 400)])
    # -α²(1 - α)α = -1/16 for α = 1/2; what is left out of the leading order falls as 1/N
    assert set(verdicts_of(STUDY, seen).values()) == {"reproduced"}
    assert values_of(STUDY, seen) == {
        "noise-avoided": pytest.approx(-0.0625),
        "noise-order": pytest.approx(-2),
        "noise-leading": pytest.approx(1, abs=0.02),
        "others-attended": pytest.approx(0.06),
        "others-order": pytest.approx(-3),
        "uniform": pytest.approx(1),
        "three-speeds": pytest.approx(0, abs=0.02),
    }


def test_claims_fail_where_attention_seeks_the_noise():
    seen = Seen([made(n, 0.0625 / n**2, 0.06 / n**2, -0.06 / n**3) for n in (100, 200, 400)])
    assert verdicts_of(STUDY, seen) == {
        "noise-avoided": "not at this scale",
        "noise-order": "not measured",
        "noise-leading": "not at this scale",
        "others-attended": "not at this scale",
        "others-order": "not measured",
        "uniform": "contradicted",
        "three-speeds": "not measured",
    }


def test_the_largest_of_the_noise_and_the_smallest_of_the_others_count():
    one_off = Seen([made(100, 1e-9, 1e-7, 1e-7), made(200, -1e-5, 1e-9, -1e-9), made(400, -1e-6, 1e-9, 2e-9)])
    found = values_of(STUDY, one_off)
    assert found["noise-avoided"] == pytest.approx(1e-9 * 100**2)
    assert found["others-attended"] == pytest.approx(-1e-9 * 200**3)
    assert found["uniform"] == pytest.approx(0.5)  # at the largest N alone


def test_batches_are_independent_and_add_up_to_zero():
    found = measure(UniformRecall(8, 24, 0.5), batches=5, batch=40)
    assert len(set(found.noise.tolist())) == 5
    assert np.abs(found.noise + found.trigger + 7 * found.other).max() < 1e-15
    assert found.error("noise") == pytest.approx(np.std(found.noise, ddof=1) / np.sqrt(5))


def test_the_study_is_registered():
    assert study("truncation/attention-gradient") is STUDY
