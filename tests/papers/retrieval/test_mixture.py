"""A mixture of depths, on runs made by hand."""

from dataclasses import replace

import pytest
import torch
from torch import tensor

from anchorlab.papers.retrieval.mixture import ALONE, MIXED, PAPER, QUICK, SMOKE, STUDY, Seen, experiments
from tests.papers.hand_made_runs import HandMadeRun, results_of, seen_by_hand, values_of

STEPS = [0, 20, 40, 60]


@pytest.mark.parametrize(("setting", "steps"), [(QUICK, 2), (PAPER, 3), (SMOKE, 2)], ids=["quick", "paper", "smoke"])
def test_both_kinds_differ_in_what_is_asked_alone(setting, steps):
    mixed, alone = experiments(setting).values()
    assert (mixed.task.asked, alone.task.asked) == (tuple(range(1, steps + 1)), (steps,))
    assert mixed.task.replace(asked_steps=(steps,)) == alone.task
    assert replace(mixed, task=alone.task, label=alone.label) == alone


def seen(mixed, alone):
    return seen_by_hand(Seen, steps=STEPS, mixed=tensor(mixed), alone=tensor(alone))


FLAT, FAST, SLOW = [1.0, 1.0, 1.0, 0.95], [1.0, 0.1, 0.0, 0.0], [1.0, 1.0, 0.9, 0.3]
HALF = [1.0, 0.9, 0.9, 0.9]  # below 0.93, and not retrieved


def test_values_of_what_was_made_by_hand():
    # in order, and the end; the first step alone; the end first; nothing
    found = seen([[FAST, SLOW], [FAST, FLAT], [SLOW, FAST], [FLAT, FLAT]], [FLAT, FLAT, SLOW, HALF])
    assert values_of(STUDY, found) == {
        "mixture-teaches-end": pytest.approx((1 + 0 + 0 + 0) / 4),  # the third learns the end either way
        "end-alone-fails": 0.5,
        "nearer-first": pytest.approx(2 / 3),
    }
    assert results_of(STUDY, found)["mixture-teaches-end"].units == (1.0, 0.0, 0.0, 0.0)
    worse = seen([[FAST, FLAT]], [SLOW])
    assert values_of(STUDY, worse)["mixture-teaches-end"] == -1
    nothing = values_of(STUDY, seen([[FLAT, FLAT]] * 2, [FLAT] * 2))
    assert nothing == {"mixture-teaches-end": 0.0, "end-alone-fails": None, "nearer-first": None}


def test_times_closer_than_two_evaluations_are_no_order():
    together = [1.0, 0.9, 0.2, 0.0]
    found = seen([[together, [1.0, 0.8, 0.2, 0.0]], [FAST, SLOW]], [FLAT, FLAT])
    assert results_of(STUDY, found)["nearer-first"].units == (1.0,)


def test_losses_are_read_by_step_in_multiples_of_guessing():
    mixed, alone = (replace(one, members=one.members.take(range(2))) for one in experiments(QUICK).values())
    ones = [[0.5] * 4] * 2
    values = {
        ("test", "loss"): ones,
        ("test", "loss", "none", "step 1"): [[0.5, 0.05, 0.0, 0.0], [0.5, 0.5, 0.45, 0.15]],
        ("test", "loss", "none", "step 2"): [[0.5, 0.5, 0.45, 0.15], [0.5] * 4],
    }
    runs = [HandMadeRun(mixed, STEPS, values), HandMadeRun(alone, STEPS, {("test", "loss"): ones})]
    found = STUDY.see(runs, QUICK)
    torch.testing.assert_close(found.mixed, tensor([[FAST, SLOW], [SLOW, [1.0] * 4]]).double())
    torch.testing.assert_close(found.alone, torch.ones(2, 4).double())
    made = STUDY.analysis(runs, QUICK)
    assert [one.label for one in made.figures[0].lines] == ["x_1, mixed depths", "x_2, mixed depths", "x_2 alone"]
    assert made.tables[0].rows[0] == (1000, *map(pytest.approx, (0.0, 0.3, 1.0)))
    assert {MIXED, ALONE} == set(experiments(QUICK))
