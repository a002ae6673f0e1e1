"""That noise is learned first, on runs made by hand."""

from dataclasses import replace

import pytest

from anchorlab.papers.truncation import noise_first
from anchorlab.papers.truncation.noise_first import STUDY, Seen, analyse
from anchorlab.papers.truncation.noisy_recall import QUICK, noisy_and_tuned
from tests.papers.hand_made_runs import HandMadeRun, values_of, verdicts_of

STEPS = (0, 5, 10, 20, 100)
# two members; fractions of predicting the noise, with peaks of 0.85 and 0.77 afresh, of 0.7 and 0.92 in fine-tuning
AFRESH = ((0.1, 0.85, 0.2, 1.0, 0.41), (0.9, 0.3, 0.77, 1.0, 0.45))
TUNED = ((0.2, 0.7, 0.6, 1.0, 0.6), (1.0, 0.1, 0.92, 1.0, 0.58))
KNEW = ((0.95, 0.2, 0.2, 0.2, 0.2), (0.87, 0.2, 0.2, 0.2, 0.2))
OTHER = ((0.33, 0.34, 0.35, 0.36, 0.37),) * 2
# probabilities of the noise, which end at 0.47 on average afresh and at 0.55 in fine-tuning
NOISE = (
    ((0.3, 0.9, 0.2, 0.1, 0.41), (0.3, 0.7, 0.2, 0.1, 0.53)),
    ((0.2, 0.5, 0.9, 0.3, 0.58), (0.2, 0.5, 0.9, 0.3, 0.52)),
)


def runs():
    experiments = noisy_and_tuned(replace(QUICK, seeds=2))
    return [
        HandMadeRun(
            experiment,
            STEPS,
            {
                ("train", "predicts_noise"): noisy,
                ("train", "noise"): probability,
                ("train", "right"): OTHER,
                ("clean", "right"): clean_right,
            },
        )
        for experiment, noisy, clean_right, probability in zip(
            experiments, (AFRESH, TUNED), (OTHER, KNEW), NOISE, strict=True
        )
    ]


def test_values_of_runs_made_by_hand():
    found = Seen(*runs())
    assert values_of(STUDY, found) == pytest.approx(
        {
            "pretraining-settles": 0.47,
            "tuning-peak": 0.81,
            "tuning-settles": 0.55,
            "tuning-knew": 0.91,
        },
        abs=1e-6,
    )
    assert set(verdicts_of(STUDY, found).values()) == {"agrees at small scale"}


def test_figures_and_table(monkeypatch):
    ideal = {"noise": 0.6, "right": 0.3}
    monkeypatch.setattr(noise_first, "ideal_scores", lambda task, split: ideal if split == "train" else {})
    analysis = analyse(runs(), QUICK)
    for panel, noisy, probability in zip(analysis.figures, (AFRESH, TUNED), NOISE, strict=True):
        fraction, noise, right = panel.lines
        assert fraction.mean == pytest.approx([(first + second) / 2 for first, second in zip(*noisy, strict=True)])
        assert noise.mean == pytest.approx([sum(two) / 2 for two in zip(*probability, strict=True)])
        assert right.mean == pytest.approx(OTHER[0])
        assert fraction.x == (1, 6, 11, 21, 101)
        assert [one.value for one in panel.references] == [0.6, 0.3]
    assert [row[0] for row in analysis.tables[0].rows] == ["from the start", "fine-tuned"]
    assert analysis.tables[0].rows[0][1:] == pytest.approx((0.5, 0.3, 0.33, 0.81, 0.43, 0.47, 0.37))
    assert analysis.tables[0].rows[1][1:] == pytest.approx((0.6, 0.2, 0.33, 0.81, 0.59, 0.55, 0.37))
