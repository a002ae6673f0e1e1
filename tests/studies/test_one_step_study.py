import numpy as np
import pytest

from anchorlab.rng import generator
from anchorlab.runs import Store
from anchorlab.studies import run_study, study
from anchorlab.studies.truncation.margin_scans import Margin, Point, Scan, Scanned, measure, samples_needed
from anchorlab.studies.truncation.one_step import SETTINGS, STUDY
from anchorlab.studies.truncation.printed_moments import (
    DELTA,
    PRINTED,
    _keeps_bounds,
    draw_moments,
    verdict,
    verdicts,
)
from anchorlab.theory.one_step import ENTRIES, Moments, feedforward_gradient, value_gradient
from anchorlab.theory.uniform_recall import UniformRecall

LAW = UniformRecall(8, 16, 0.5)


def test_verdicts_on_formulas_made_by_hand():
    def derived(n, t, a):
        return a * (1 / n + 1 / t)

    assert verdict(derived, derived) == "confirmed"
    assert verdict(lambda n, t, a: a / n, derived) == "confirmed for T ≫ N"
    assert verdict(lambda n, t, a: 1 / n, derived) == "corrected"
    assert verdict(lambda n, t, a: 2 * a / n, derived) == "corrected"
    assert verdict(lambda n, t, a: -derived(n, t, a), derived) == "confirmed but for the sign"
    assert verdict(None, derived) == "not readable"


def test_printed_variances_are_too_large_by_a_mean_square_over_n():
    # 1/(N+1) enters the square of 1/(N+1) - 1{y = j} twice; the printed variances of outputs j <= N have it once.
    law = UniformRecall(400, 4000, 0.4)
    n, t, a = law.tokens, law.length, law.alpha
    shares = law.moments.square / t**2
    for entry, kind in {
        ("trigger", "noise"): 0,
        ("trigger", "other"): 3,
        ("other", "noise"): 0,
        ("other", "other"): 3,
    }.items():
        right = (1 - a) / n * law.given(entry[0] == "trigger").square[kind] / t**2
        assert PRINTED[entry].variance(n, t, a) == pytest.approx(right + shares[kind] / n, rel=0.02)


def test_every_entry_has_a_verdict():
    assert list(PRINTED) == list(ENTRIES)
    assert verdicts(means=True).count("not readable") == 2
    assert [one for one in verdicts(means=False) if one == "corrected"] == ["corrected"] * 7


def test_drawn_moments_agree_with_the_exact_ones():
    drawn = draw_moments(UniformRecall(6, 12, 0.4), batches=40, size=2000)
    assert np.abs(drawn.scores(means=True)).max() < 4.5
    assert np.abs(drawn.scores(means=False)).max() < 4.5
    assert drawn.kept >= 1 - DELTA


def test_bounds_that_are_too_narrow_are_left():
    law = UniformRecall(6, 12, 0.4)
    drawn, sample = draw_moments(law, batches=2, size=100), law.draw(generator(0, "bounds"), 100)
    gradient, value = feedforward_gradient(sample, 6), value_gradient(sample, 6)
    assert _keeps_bounds(law, drawn.exact, gradient, value, 100)
    for entry in range(len(drawn.exact)):
        narrow = [Moments(one.mean, 0.0, 0.0) if at == entry else one for at, one in enumerate(drawn.exact)]
        assert not _keeps_bounds(law, narrow, gradient, value, 100)


def test_points_of_a_scan():
    assert Scan(LAW, 5, "samples", (7, 9)).points() == [(LAW, 7), (LAW, 9)]
    assert Scan(LAW, 5, "tokens", (10,)).points() == [(UniformRecall(10, 16, 0.5), 5)]
    assert Scan(LAW, 5, "length", (20,)).points() == [(UniformRecall(8, 20, 0.5), 5)]


def made_margin(values) -> Margin:
    return Margin(np.array(values, dtype=float), 1.0, 1.0, 0.0)


def test_samples_needed_by_hand():
    shares = {10: 0.5, 100: 0.9, 1000: 1.0}
    points = [
        Point(samples, {"feedforward": made_margin([[1.4]] * round(10 * share) + [[1.6]] * round(10 - 10 * share))})
        for samples, share in shares.items()
    ]
    assert samples_needed(points, "feedforward", share=0.95) == pytest.approx(100 * 10**0.5)
    assert samples_needed(points, "feedforward", share=0.4) == 10
    assert np.isnan(samples_needed(points[:2], "feedforward", share=0.95))


def test_powers_by_hand():
    points = [Point(x, {"typical": Margin(np.ones((2, 1)), 3 * x**-0.5, x**-1.0, 0.0)}) for x in (4, 16, 64)]
    scanned = Scanned(Scan(LAW, 1, "samples", (4, 16, 64)), points)
    assert scanned.power("typical").slope == pytest.approx(-0.5)
    assert scanned.predicted_power("typical") == pytest.approx(-1)


def test_margins_spread_as_predicted():
    point = measure(UniformRecall(16, 128, 0.5), samples=1000, draws=200)
    for margin in point.margins.values():
        assert margin.values.mean() == pytest.approx(1, abs=0.2)
        assert margin.deviation == pytest.approx(margin.predicted, rel=0.25)
        assert 0 < margin.excess < 2


def test_a_study_without_trainings_says_where_it_comes_from(tmp_path):
    store = Store(tmp_path)
    findings = run_study(STUDY, "smoke", store, workers=1)
    assert findings.provenance.seeds == "0"
    assert findings.provenance.commit and findings.provenance.torch
    assert findings.provenance.seconds > 0
    again = run_study(STUDY, "smoke", store, workers=1)
    assert (again.claims, again.figures) == (findings.claims, findings.figures)


def test_the_study_is_registered_with_settings_for_every_profile():
    assert study("truncation/one-step") is STUDY
    assert set(SETTINGS) == set(STUDY.profiles)
