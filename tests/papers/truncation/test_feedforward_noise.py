"""What the second feed-forward layer stores, on runs made by hand."""

from dataclasses import replace

import pytest

from anchorlab.papers.truncation import feedforward_noise
from anchorlab.papers.truncation.feedforward_noise import STUDY, analyse, experiments, recall_later
from anchorlab.papers.truncation.noisy_recall import FULL, QUICK, WITHOUT_F1, WITHOUT_F2
from tests.papers.hand_made_runs import HandMadeRun, values_of, verdicts_of

STEPS = (0, 1, 10, 15, 100)
EDITS = (FULL, "rho=0.5", "rho=0.25", "rho=0.1", "rho=0.05", WITHOUT_F2, WITHOUT_F1)
# the last values of two members, in the order of the edits
RIGHT = ((0.5, 0.48), (0.6, 0.6), (0.7, 0.7), (0.8, 0.8), (0.9, 0.9), (0.94, 0.98), (0.1, 0.1))
NOISE = ((0.42, 0.54), (0.4, 0.4), (0.3, 0.3), (0.2, 0.2), (0.1, 0.1), (0.03, 0.05), (0.7, 0.7))
LOSS = ((0.8, 0.64), (0.5, 0.5), (0.3, 0.3), (0.4, 0.22), (0.2, 0.2), (0.2, 0.4), (3.0, 3.0))
# before the end, of the full model alone: noise is highest at 10 (of steps 1 to 10) and reaches 0.5 at 1 and before
EARLY_NOISE = ((0.0, 0.5, 0.9, 0.95), (0.99, 0.3, 0.72, 0.8))
# the right token reaches 0.25 at 15 + 85 / 2 and at 12.5
EARLY_RIGHT = ((0.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 0.5))


def run(early_right=EARLY_RIGHT, early_noise=EARLY_NOISE, **changed):
    """The run in which some ends are `changed`, given as `noise={edit: (first member, second)}`."""
    values = {}
    for metric, numbers in (("right", RIGHT), ("noise", NOISE), ("loss", LOSS), ("accuracy", RIGHT)):
        early = {"right": early_right, "noise": early_noise}.get(metric, ((9.0,) * 4,) * 2)
        for edit, last in (dict(zip(EDITS, numbers, strict=True)) | changed.get(metric, {})).items():
            before = early if edit == FULL else ((9.0,) * 4,) * 2
            values["clean", metric, edit] = [[*curve, end] for curve, end in zip(before, last, strict=True)]
            values["train", metric, edit] = [[7.0] * 5] * 2  # never to be read
    values["clean", "predicts_noise"] = [[*curve, 0.0] for curve in early_noise]
    return HandMadeRun(experiments(replace(QUICK, seeds=2))[0], STEPS, values)


def test_values_of_runs_made_by_hand():
    assert values_of(STUDY, run()) == pytest.approx(
        {
            "full-noise": 0.48,
            "dropped-right": 0.96,
            "dropped-noise": 0.04,
            "clean-loss-falls": 0.72 - 0.3,
            "loss-order": 0.3 - 0.2,
            "noise-first": 0.81,
            "recall-later": 12.5,
        },
        abs=1e-6,
    )


def test_all_hold_where_the_loss_falls_at_every_step():
    found = run(loss={WITHOUT_F2: (0.15, 0.15)})
    assert values_of(STUDY, found)["loss-order"] == pytest.approx(0.01, abs=1e-6)  # from rho = 0.25 to 0.1
    assert set(verdicts_of(STUDY, found).values()) == {"agrees at small scale"}


def test_the_order_of_losses_that_do_not_fall_is_not_judged():
    assert values_of(STUDY, run(loss={WITHOUT_F2: (0.3, 0.36)}))["loss-order"] is None


def test_a_lowest_delay_has_all_seeds_as_units():
    assert recall_later(run()).units == pytest.approx((15 + 85 / 2, 12.5))
    later = run(early_noise=((0.0, 0.0, 1.0, 0.9), (0.6, 0.6, 0.6, 0.6)))  # the noise reaches 0.5 at 5.5, and at 0
    assert recall_later(later).units == pytest.approx(((15 + 85 / 2) / 5.5, 12.5))
    assert recall_later(run(right={FULL: (0.2, 0.48)})) is None  # the first member never recalls


def test_figures_and_table(monkeypatch):
    ideal = {"right": 0.3, "noise": 0.6, "loss": 1.1}
    monkeypatch.setattr(feedforward_noise, "ideal_scores", lambda task, split: ideal if split == "clean" else {})
    analysis = analyse([run()], QUICK)
    *panels, against = analysis.figures
    for panel, numbers, references in zip(panels, (RIGHT, NOISE, LOSS), ((0.98, 0.3), (0.6,), (1.1,)), strict=True):
        drawn = [line.mean[-1] for line in panel.lines]
        assert drawn == pytest.approx([(first + second) / 2 for first, second in numbers[:-1]])
        assert tuple(one.value for one in panel.references) == references
        assert panel.lines[0].x == (1, 2, 11, 16, 101)
    assert against.lines[0].x == (0, 0.05, 0.1, 0.25, 0.5, 1)
    assert against.lines[0].mean == pytest.approx((0.3, 0.2, 0.31, 0.3, 0.5, 0.72))
    rows = {row[0]: row[1:] for row in analysis.tables[0].rows}
    assert rows["full model (ρ = 1)"] == pytest.approx((0.49, 0.48, 0.72, 0.49))
    assert rows["ρ = 0"] == pytest.approx((0.96, 0.04, 0.3, 0.96))
