import numpy as np
import pytest

from anchorlab.runs import Store
from anchorlab.studies import run_study, study
from anchorlab.studies.truncation.attention_gradient import CLAIMS, SETTINGS, STUDY, Measured, _judge, _powers, measure
from anchorlab.theory.uniform_recall import UniformRecall


def made(tokens: int, noise: float, trigger: float, other: float) -> Measured:
    return Measured(UniformRecall(tokens, 16 * tokens, 0.5), *(np.full(2, one) for one in (noise, trigger, other)))


def test_claims_of_projections_made_by_hand():
    measured = [made(n, -0.0625 / n**2, 0.06 / n**3, 0.06 / n**3) for n in (100, 200, 400)]
    results = {one.claim.id.rpartition("/")[2]: one for one in _judge(measured, _powers(measured), "smoke")}
    assert list(results) == [claim.id.rpartition("/")[2] for claim in CLAIMS]
    assert {one.verdict for one in results.values()} == {"reproduced"}
    assert results["noise-order"].value == pytest.approx(-2)
    assert results["others-order"].value == pytest.approx(-3)
    assert results["uniform"].value == pytest.approx(1)


def test_claims_fail_where_attention_seeks_the_noise():
    measured = [made(n, 0.0625 / n**2, 0.06 / n**2, -0.06 / n**3) for n in (100, 200, 400)]
    results = {one.claim.id.rpartition("/")[2]: one.verdict for one in _judge(measured, _powers(measured), "smoke")}
    assert results["noise-avoided"] == results["others-attended"] == results["uniform"] == "not reproduced"
    assert results["noise-order"] == results["others-order"] == results["three-speeds"] == "not measured"


def test_batches_are_independent_and_add_up_to_zero():
    found = measure(UniformRecall(8, 24, 0.5), batches=5, batch=40)
    assert len(set(found.noise.tolist())) == 5
    assert np.abs(found.noise + found.trigger + 7 * found.other).max() < 1e-15
    assert found.error("noise") == pytest.approx(np.std(found.noise, ddof=1) / np.sqrt(5))


def test_the_study_runs_and_is_registered(tmp_path):
    assert study("truncation/attention-gradient") is STUDY
    assert set(SETTINGS) == set(STUDY.profiles)
    findings = run_study(STUDY, "smoke", Store(tmp_path), workers=1)
    assert findings.provenance.seeds == "0" and findings.provenance.commit
