"""Which task comes first, on runs made by hand."""

from dataclasses import replace

import pytest

from anchorlab.papers.anchor.frequency import PAPER, QUICK, STUDY, experiments
from tests.papers.hand_made_runs import HandMadeRun, results_of, values_of, verdicts_of


def see(runs):
    return STUDY.see(runs, QUICK)


STEPS = (0, 100, 200, 300)
# two seeds; the low task is fitted at 50 and 150, the high one at 150 and 200
LOW_LOSS, HIGH_LOSS = [[1, 0, 0, 0], [1, 1, 0, 0]], [[1, 1, 0, 0], [1, 1, 0.5, 0]]
# above 0.9 at 200 and 300 (low), at 290 and 300 (high)
LOW_ACCURACY, HIGH_ACCURACY = [[0, 0.4, 0.9, 1], [0, 0, 0, 0.9]], [[0, 0, 0, 1], [0, 0, 0.1, 0.9]]


def runs(low_loss=LOW_LOSS, high_loss=HIGH_LOSS, low_accuracy=LOW_ACCURACY, high_accuracy=HIGH_ACCURACY):
    losses, accuracies = (low_loss, high_loss), (low_accuracy, high_accuracy)
    other = [[9, 9, 9, 9], [9, 9, 9, 9]]  # what must not be read: the loss in test, the accuracy in training
    return [
        HandMadeRun(
            experiment,
            STEPS,
            {
                ("train", "loss"): loss, ("test", "accuracy"): accuracy, ("test", "loss"): other,
                ("train", "accuracy"): other,
            },
        )
        for experiment, loss, accuracy in zip(
            experiments(replace(QUICK, seeds=2)).values(), losses, accuracies, strict=True
        )
    ]  # fmt: skip


def test_values_of_runs_made_by_hand():
    found = values_of(STUDY, see(runs()))
    assert found == {
        "loss-first": 1.0,
        "accuracy-first": 0.5,  # the second seed reaches 0.9 at the same step
        "slower": pytest.approx((150 / 50 + 200 / 150) / 2),
    }
    assert verdicts_of(STUDY, see(runs())) == {
        "loss-first": "agrees at small scale",
        "accuracy-first": "differs at small scale",
        "slower": "agrees at small scale",
    }


def test_the_other_task_first_and_one_that_never_comes():
    swapped = see(runs(HIGH_LOSS, LOW_LOSS, HIGH_ACCURACY, LOW_ACCURACY))
    assert values_of(STUDY, swapped) == {
        "loss-first": 0.0, "accuracy-first": 0.0, "slower": pytest.approx((50 / 150 + 150 / 200) / 2),
    }  # fmt: skip
    # the first seed never fits the high task: its ratio is that of the whole training, of 1200 steps, to 50
    late = see(runs(high_loss=[[1, 1, 1, 1], [1, 1, 0.5, 0]], high_accuracy=[[0] * 4, [0] * 4]))
    assert values_of(STUDY, late) == {
        "loss-first": 1.0, "accuracy-first": 1.0, "slower": pytest.approx((1200 / 50 + 200 / 150) / 2),
    }  # fmt: skip
    early = see(runs(low_loss=[[1, 1, 1, 1], [1, 1, 0, 0]], low_accuracy=[[0] * 4, [0, 0, 0, 0.9]]))
    assert values_of(STUDY, early) == {
        "loss-first": 0.5, "accuracy-first": 0.0, "slower": pytest.approx((150 / 1200 + 200 / 150) / 2),
    }  # fmt: skip


def test_of_a_seed_that_learns_neither_task_nothing_is_known_but_of_the_published_one():
    never = [[1] * 4, [1, 1, 0, 0]], [[1] * 4, [1, 1, 0.5, 0]], [[0] * 4, [0, 0, 0, 0.9]], [[0] * 4, [0] * 4]
    found = results_of(STUDY, see(runs(*never)))
    assert {name: (one.value, len(one.units)) for name, one in found.items()} == {
        "loss-first": (1.0, 1), "accuracy-first": (1.0, 1), "slower": (pytest.approx(200 / 150), 1),
    }  # fmt: skip
    neither = see(runs([[1] * 4] * 2, [[1] * 4] * 2, [[0] * 4] * 2, [[0] * 4] * 2))
    assert values_of(STUDY, neither) == {"loss-first": None, "accuracy-first": None, "slower": None}
    # low: fitted and generalised at step 600. High: fitted at 700, at an accuracy of 0.708 in the end
    low, high = (one.take(range(1)) for one in experiments(PAPER).values())
    steps, loss = (0, 500, 600, 700, 20_000), {"low": [5, 1, 0, 0, 0], "high": [5, 1, 1, 0, 0]}
    accuracy = {"low": [0, 0, 0.9, 1, 1], "high": [0, 0, 0, 0, 0.708]}
    made = [
        HandMadeRun(one, steps, {("train", "loss"): [loss[level]], ("test", "accuracy"): [accuracy[level]]})
        for level, one in (("low", low), ("high", high))
    ]
    assert values_of(STUDY, see(made), "paper") == {
        "loss-first": 1.0, "accuracy-first": 1.0, "slower": pytest.approx(650 / 550),
    }  # fmt: skip
