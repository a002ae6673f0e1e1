"""Learning rates and noise levels, on runs made by hand."""

from dataclasses import replace

import pytest

from anchorlab.papers.truncation.noisy_recall import QUICK, WITHOUT_F2
from anchorlab.papers.truncation.stability import ALPHAS, RATES, STUDY, analyse, experiments, see
from tests.papers.hand_made_runs import HandMadeRun, values_of, verdicts_of

STEPS = (0, 10, 300, 900)
GOOD = (0.9, 0.5, 0.97)
"""A member's early fraction, the noise at its end, and the right token without F_2; with F_2 it is 1 less the noise."""


def runs(rates=(GOOD,) * 3, alphas=((0.9, 0.2, 0.97), (0.9, 0.8, 0.97)), main=(GOOD, GOOD)):
    made = []
    for experiment, members in zip(experiments(replace(QUICK, seeds=2)), (main, rates, *zip(alphas)), strict=True):
        values = {
            ("train", "predicts_noise"): [[1.0, 0.2, early, 1.0] for early, _, _ in members],
            ("clean", "predicts_noise"): [[1.0] * 4] * len(members),
            ("clean", "noise"): [[9, 9, 9, noise] for _, noise, _ in members],
            ("clean", "right"): [[9, 9, 9, 1 - noise] for _, noise, _ in members],
            ("clean", "right", WITHOUT_F2): [[9, 9, 9, right] for _, _, right in members],
        }
        made.append(HandMadeRun(experiment, STEPS, values))
    return made


def test_values_of_runs_made_by_hand():
    rates = ((0.88, 0.5, 0.97), (0.9, 0.5, 0.96), GOOD)
    found = see(runs(rates, main=((0.85, 0.52, 0.96), (0.95, 0.5, 1.0))))
    assert list(found.rates) == [*RATES, 0.03]
    assert list(found.alphas) == [0.2, 0.5, 0.8]
    assert values_of(STUDY, found) == pytest.approx(
        {
            "rates-noise-first": 0.88,
            "rates-dropped": 0.96,
            "alphas-gain": (0.97 - 0.8) / 0.2,
        },
        abs=1e-6,
    )
    assert set(verdicts_of(STUDY, found).values()) == {"agrees at small scale"}
    assert STUDY.claims[0](found).detail == "0.88 at 0.001, 0.9 at 0.003, 0.9 at 0.01, 0.9 at 0.03"


def test_the_settings_differ_in_one_thing_each():
    main, rates, *alphas = experiments(QUICK)
    assert main.cell.address == QUICK.experiment().cell.address  # trained once for all studies
    assert rates.members.learning_rate == RATES
    assert [one.task.alpha for one in (main, rates, *alphas)] == [0.5, 0.5, *ALPHAS]


def test_figures_and_table():
    analysis = analyse(runs(), QUICK)
    by_rate, by_alpha = analysis.figures
    assert (by_rate.lines[0].x, by_alpha.lines[0].x) == ((*RATES, 0.03), (0.2, 0.5, 0.8))
    assert by_alpha.lines[1].mean == pytest.approx((0.2, 0.5, 0.8))
    assert [row[0] for row in analysis.tables[0].rows][-2:] == ["α = 0.5", "α = 0.8"]
    assert analysis.tables[0].rows[-1][1:] == pytest.approx((0.9, 0.8, 0.97, 0.77))
