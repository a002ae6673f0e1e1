"""Which task comes first, on runs made by hand."""

from dataclasses import replace

import pytest

from anchorlab.papers.anchor.frequency import PAPER, QUICK, STUDY, experiments
from tests.papers.hand_made_runs import HandMadeRun, results_of, values_of

STEPS = (0, 100, 200, 300)
# two seeds; the low task is fitted at 50 and 150, the high one at 150 and 200
LOW_LOSS, HIGH_LOSS = [[1, 0, 0, 0], [1, 1, 0, 0]], [[1, 1, 0, 0], [1, 1, 0.5, 0]]
# above 0.9 at 200 and 300 (low), at 290 and 300 (high)
LOW_ACCURACY, HIGH_ACCURACY = [[0, 0.4, 0.9, 1], [0, 0, 0, 0.9]], [[0, 0, 0, 1], [0, 0, 0.1, 0.9]]


def see(losses=(LOW_LOSS, HIGH_LOSS), accuracies=(LOW_ACCURACY, HIGH_ACCURACY)):
    made = zip(experiments(replace(QUICK, seeds=2)).values(), losses, accuracies, strict=True)
    runs = [
        HandMadeRun(one, STEPS, {("train", "loss"): loss, ("test", "accuracy"): right}) for one, loss, right in made
    ]
    return STUDY.see(runs, QUICK)


NEVER_FITS, NEVER_RIGHT = [[1] * 4] * 2, [[0] * 4] * 2


@pytest.mark.parametrize(
    ("losses", "accuracies", "expected"),
    [
        # the second seed reaches 0.9 at the same step
        ((LOW_LOSS, HIGH_LOSS), (LOW_ACCURACY, HIGH_ACCURACY), ((150 / 50 + 200 / 150) / 2, (290 / 200 + 1) / 2)),
        ((HIGH_LOSS, LOW_LOSS), (HIGH_ACCURACY, LOW_ACCURACY), ((50 / 150 + 150 / 200) / 2, (200 / 290 + 1) / 2)),
        # the first seed never fits one task: its ratio is to that of the whole training, of 1200 steps
        (
            (LOW_LOSS, [[1, 1, 1, 1], [1, 1, 0.5, 0]]),
            (LOW_ACCURACY, NEVER_RIGHT),
            ((1200 / 50 + 200 / 150) / 2, (1200 / 200 + 1200 / 300) / 2),
        ),
        (
            ([[1, 1, 1, 1], [1, 1, 0, 0]], HIGH_LOSS),
            ([[0] * 4, [0, 0, 0, 0.9]], HIGH_ACCURACY),
            ((150 / 1200 + 200 / 150) / 2, (290 / 1200 + 1) / 2),
        ),
        ((NEVER_FITS, NEVER_FITS), (NEVER_RIGHT, NEVER_RIGHT), (None, None)),
    ],
)
def test_values_of_runs_made_by_hand(losses, accuracies, expected):
    assert values_of(STUDY, see(losses, accuracies)) == pytest.approx(
        dict(zip(("slower", "generalises-later"), expected, strict=True))
    )


def test_of_a_seed_that_learns_neither_task_nothing_is_known_but_of_the_published_one():
    losses, accuracies = ([[1] * 4, [1, 1, 0, 0]], [[1] * 4, [1, 1, 0.5, 0]]), ([[0] * 4, [0, 0, 0, 0.9]], NEVER_RIGHT)
    found = results_of(STUDY, see(losses, accuracies))
    assert {name: one.units for name, one in found.items()} == {
        "slower": (pytest.approx(200 / 150),),
        "generalises-later": (pytest.approx(1200 / 300),),
    }
    # low: fitted and generalised at step 600. High: fitted at 700, at an accuracy of 0.708 in the end
    steps, made = (0, 500, 600, 700, 20_000), (one.take(range(1)) for one in experiments(PAPER).values())
    ends = ([5, 1, 0, 0, 0], [0, 0, 0.9, 1, 1]), ([5, 1, 1, 0, 0], [0, 0, 0, 0, 0.708])
    made = [
        HandMadeRun(one, steps, {("train", "loss"): [loss], ("test", "accuracy"): [accuracy]})
        for one, (loss, accuracy) in zip(made, ends, strict=True)
    ]
    assert values_of(STUDY, STUDY.see(made, QUICK), "paper") == {
        "slower": pytest.approx(650 / 550),
        "generalises-later": pytest.approx(20_000 / 600),
    }
