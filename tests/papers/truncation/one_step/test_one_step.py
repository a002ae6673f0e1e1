from dataclasses import replace

import numpy as np
import pytest

from anchorlab.papers.truncation.one_step.one_step import STUDY, Seen
from anchorlab.rng import generator
from anchorlab.runs import Store
from anchorlab.studies import run_study
from anchorlab.theory import table_2
from anchorlab.theory.margin_scans import Margin, Point, Scan, Scanned, measure, samples_needed
from anchorlab.theory.one_step import ENTRIES, Moments, feedforward_gradient, value_gradient
from anchorlab.theory.table_2 import DELTA, LEMMA_D1, PRINTED, Drawn, draw_moments, lemma_verdicts, verdict, verdicts
from anchorlab.theory.uniform_recall import UniformRecall
from tests.papers.hand_made_runs import results_of, values_of, verdicts_of
from tests.papers.hand_made_runs import seen_by_hand as made_by_hand

LAW = UniformRecall(8, 16, 0.5)


def test_verdicts_on_formulas_made_by_hand():
    def derived(n, t, a):
        return a * (1 / n + 1 / t)

    assert verdict(derived, derived) == "confirmed"
    assert verdict(lambda n, t, a: a / n, derived) == "confirmed for T ≫ N"
    assert verdict(lambda n, t, a: 1 / n, derived) == "corrected"
    assert verdict(lambda n, t, a: 2 * a / n, derived) == "corrected"
    assert verdict(lambda n, t, a: -derived(n, t, a), derived) == "confirmed but for the sign"
    assert verdict(None, derived) == "illegible"


def test_a_wrong_entry_of_lemma_d_1_is_not_confirmed(monkeypatch):
    assert [lemma_verdicts(means) for means in (True, False)] == [["confirmed", "confirmed"]] * 2
    # the tokens of [N] are predicted alike, with 1 - α in all: a printed mean without 1 - α would be zero
    wrong = replace(LEMMA_D1["other"], mean=lambda n, t, a: 1 / (n + 1) - 1 / n, variance=lambda n, t, a: 1 / n)
    monkeypatch.setitem(LEMMA_D1, "other", wrong)
    assert [lemma_verdicts(means)[1] for means in (True, False)] == ["corrected", "corrected"]


def test_printed_variances_are_too_large_and_bounds_too_narrow_are_left():
    # 1/(N+1) enters the square of 1/(N+1) - 1{y = j} twice; the printed variances of outputs j <= N have it once.
    law = UniformRecall(400, 4000, 0.4)
    n, t, a = law.tokens, law.length, law.alpha
    shares = law.moments.square / t**2
    for entry, kind in {("trigger", "other"): 3, ("other", "noise"): 0, ("other", "other"): 3}.items():
        right = (1 - a) / n * law.given(entry[0] == "trigger").square[kind] / t**2
        assert PRINTED[entry].variance(n, t, a) == pytest.approx(right + shares[kind] / n, rel=0.02)
    law = UniformRecall(6, 12, 0.4)
    drawn, sample = draw_moments(law, batches=2, size=100), law.draw(generator(0, "bounds"), 100)
    gradient, value = feedforward_gradient(sample, 6), value_gradient(sample, 6)
    assert table_2._keeps_bounds(law, drawn.exact, gradient, value, 100)
    for entry in range(len(drawn.exact)):
        narrow = [Moments(one.mean, 0.0, 0.0) if at == entry else one for at, one in enumerate(drawn.exact)]
        assert not table_2._keeps_bounds(law, narrow, gradient, value, 100)


def test_drawn_moments_agree_with_the_exact_ones_and_every_entry_has_a_verdict():
    assert list(PRINTED) == list(ENTRIES)
    assert [verdicts(means).count("illegible") for means in (True, False)] == [2, 2]
    assert [one for one in verdicts(means=False) if one == "corrected"] == ["corrected"] * 5
    drawn = draw_moments(UniformRecall(6, 12, 0.4), batches=40, size=2000)
    assert np.abs(drawn.scores(means=True)).max() < 4.5
    assert np.abs(drawn.scores(means=False)).max() < 4.5
    assert drawn.kept.shape == (40,) and drawn.kept.mean() >= 1 - DELTA


def test_samples_needed_and_powers_by_hand():
    assert Scan(LAW, 5, "samples", (7, 9)).points() == [(LAW, 7), (LAW, 9)]
    assert Scan(LAW, 5, "tokens", (10,)).points() == [(UniformRecall(10, 16, 0.5), 5)]
    assert Scan(LAW, 5, "length", (20,)).points() == [(UniformRecall(8, 20, 0.5), 5)]
    shares = {10: 0.5, 100: 0.9, 1000: 1.0}
    points = [
        Point(samples, {"feedforward": made_margin([[1.4]] * round(10 * share) + [[1.6]] * round(10 - 10 * share))})
        for samples, share in shares.items()
    ]
    assert samples_needed(points, "feedforward", share=0.95) == pytest.approx(100 * 10**0.5)
    assert samples_needed(points, "feedforward", share=0.4) == 10
    assert np.isnan(samples_needed(points[:2], "feedforward", share=0.95))
    points = [Point(x, {"typical": Margin(np.ones((2, 1)), 3 * x**-0.5, x**-1.0, 0.0)}) for x in (4, 16, 64)]
    scanned = Scanned(Scan(LAW, 1, "samples", (4, 16, 64)), points)
    assert scanned.power("typical").slope == pytest.approx(-0.5)
    assert scanned.predicted_power("typical") == pytest.approx(-1)


def made_margin(values) -> Margin:
    return Margin(np.array(values, dtype=float), 1.0, 1.0, 0.0)


def test_margins_spread_as_predicted():
    point = measure(UniformRecall(16, 128, 0.5), samples=1000, draws=200)
    for margin in point.margins.values():
        assert margin.values.mean() == pytest.approx(1, abs=0.2)
        assert margin.deviation == pytest.approx(margin.predicted, rel=0.25)
        assert 0 < margin.excess < 2


def test_a_study_without_trainings_says_where_it_comes_from_and_no_profile_is_the_papers(tmp_path):
    store = Store(tmp_path)
    findings = run_study(STUDY, "smoke", store, workers=1)
    assert findings.provenance.seeds == "0"
    assert findings.provenance.commit and findings.provenance.torch
    assert findings.provenance.reused == 0
    again = run_study(STUDY, "smoke", store, workers=1)
    assert (again.claims, again.figures) == (findings.claims, findings.figures)
    for profile in STUDY.profiles:
        scopes = {one.claim.id.rpartition("/")[2]: one.scope for one in STUDY.judge(seen_by_hand(), profile)}
        known = {"means": "own", "variances": "own"}
        if profile != "smoke":
            known |= {"printed-means": "exact", "printed-variances": "exact"}
        assert scopes == {name: known.get(name, "other" if profile == "smoke" else "theory") for name in scopes}


def margin(value=1.0, deviation=1.0, excess=0.5) -> Margin:
    return Margin(np.full((2, 1), value), float(deviation), float(deviation), excess)


def scanned(along, feedforward, typical, repeated, /, **last) -> Scanned:
    """A scan whose deviations follow these powers of its axis; `last` replaces margins at its last point."""
    values = (16, 64, 256)
    points = [
        Point(x, {"feedforward": margin(deviation=x**feedforward), "typical": margin(deviation=x**typical),
                  "repeated": margin(deviation=x**repeated)})
        for x in values
    ]  # fmt: skip
    points[-1] = Point(values[-1], {**points[-1].margins, **last})
    return Scanned(Scan(LAW, 1, along, values), points)


def drawn_by_hand(means, variances, kept=(True, True, True, True)) -> Drawn:
    """Twelve entries with exact mean 0 and variance 1, in four batches that spread by a standard error of 1."""
    batches = np.array([-1.0, 1.0, -1.0, 1.0]) * np.sqrt(3)  # standard deviation 2, over four batches: 1
    exact = tuple(Moments(0.0, 1.0, 1.0) for _ in range(12))
    return Drawn(
        LAW, exact, np.array(means)[:, None] + batches, 1 + np.array(variances)[:, None] + batches, np.array(kept)
    )


def seen_by_hand(**changes) -> Seen:
    scans = {
        "samples": scanned("samples", -0.5, -0.5, -0.5, feedforward=margin(0.97), typical=margin(1.04)),
        "tokens": scanned("tokens", 0.02, -1, -1),
        "length": scanned("length", -0.05, 0, 0),
        "short tokens": scanned("tokens", 0, 0, -0.5),
        "short length": scanned("length", 0, -1, -0.5, repeated=margin(deviation=256**-0.5, excess=1.5)),
    }
    given = {
        "drawn": drawn_by_hand([0.5, -3.5, *[0] * 10], [2.5, -1, *[0] * 10]),
        "scanned": scans,
        "setting": replace(STUDY.smoke, needed=[UniformRecall(tokens, 32, 0.5) for tokens in (10, 100, 1000)]),
        "needed": {
            "feedforward": [8.0, 8.0, 8.0], "typical": [10.0, 100.0, 1000.0], "repeated": [20.0, 200.0, float("nan")],
        },
    }  # fmt: skip
    return made_by_hand(Seen, **given | changes)


def test_every_claim_of_measurements_made_by_hand():
    found = values_of(STUDY, seen_by_hand())
    assert found == {
        "means": pytest.approx(3.5),
        "variances": pytest.approx(2.5),
        "printed-means": 1.0,
        "printed-variances": pytest.approx(3 / 8),  # five of the eight that are legible are corrected
        "lemma-bounds": 1.0,
        "feedforward-margin": pytest.approx(0.97),
        "attention-margin": pytest.approx(1.04),
        "feedforward-tokens-length": pytest.approx(0.05),
        "attention-tokens": pytest.approx(-1),
        "attention-short-tokens": pytest.approx(-0.5),
        "attention-short-length": pytest.approx(-0.5),
        "theorem-bounds": pytest.approx(1.5),
        "feedforward-few": pytest.approx(0),
        "attention-many": pytest.approx(1),
        "attention-many-hardest": None,
    }
    verdicts = verdicts_of(STUDY, seen_by_hand())
    assert verdicts.pop("printed-variances") == "contradicted"  # a derivation needs no training
    assert verdicts.pop("attention-many-hardest") == "not measured"
    assert verdicts.pop("printed-means") == "reproduced"
    assert set(verdicts.values()) == {"agrees at our sizes"}


def test_a_training_set_is_one_unit_and_samples_needed_are_powers():
    values = np.array([[0.9, 1.1, 1.3], [0.8, 1.0, 1.2]])
    spread = Margin(values, 1.0, 1.0, 0.5)
    found = results_of(STUDY, seen_by_hand(
        scanned={**seen_by_hand().scanned, "samples": scanned("samples", -0.5, -0.5, -0.5, typical=spread)},
        drawn=drawn_by_hand([0.0] * 12, [0.0] * 12, kept=(True, False, True, True)),
    ))  # fmt: skip
    assert found["attention-margin"].units == pytest.approx((1.1, 1.0))
    assert found["lemma-bounds"].units == (1.0, 0.0, 1.0, 1.0)
    needed = {"feedforward": [8.0, 80.0, 800.0], "typical": [8.0] * 3, "repeated": [8.0, 800.0, 8e4]}
    found = values_of(STUDY, seen_by_hand(needed=needed))
    powers = [found[name] for name in ("feedforward-few", "attention-many", "attention-many-hardest")]
    assert powers == pytest.approx([1, 0, 2], abs=1e-9)
    verdicts = verdicts_of(STUDY, seen_by_hand(needed=needed))
    assert [verdicts[name] for name in ("feedforward-few", "attention-many", "attention-many-hardest")] == [
        "differs at our sizes"
    ] * 3  # where equally many samples suffice for the attention, "many more" are not needed
