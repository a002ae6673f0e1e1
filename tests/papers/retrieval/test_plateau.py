"""What it takes to leave the plateau, and a mixture of depths, on losses and runs made by hand."""

import math
from dataclasses import replace

import pytest
import torch
from torch import tensor

from anchorlab.papers.retrieval import mixture
from anchorlab.papers.retrieval.mixture import ALONE, MIXED, PAPER, QUICK, SMOKE
from anchorlab.papers.retrieval.plateau import DISTINCT, STUDY, Seen, Setting, experiments
from anchorlab.papers.retrieval.settings import nearly_orthogonal, orthogonal, quick
from tests.papers.hand_made_runs import HandMadeRun, results_of, seen_by_hand, values_of

SETTING = Setting(quick(2, 4, 200, seeds=2), quick(3, 6, 200, seeds=2), changes=())
STEPS = (0, 100, 200)


def losses(having, lacking):
    return seen_by_hand(Seen, having=having, lacking=lacking)


# partial losses [member][symbol][step]
TWO = [[[1, 0, 0], [1, 1, 0.25]], [[1, 1, 0], [1, 0.25, 0.25]]]  # 50 and 100 + 200 / 3; 150 and 200 / 3
THREE = [[[1, 0, 0], [1, 1, 1], [1, 1, 1]], [[1, 1, 1], [1, 1, 1], [1, 1, 1]]]


def closest(frequencies, first, last):
    """The largest cosine between position vectors that lie so many places apart."""
    return max(sum(math.cos(apart * one) for one in frequencies) / len(frequencies) for apart in range(first, last))


def test_what_is_said_of_position_vectors():
    for features in (4, 8, 16):
        assert closest(orthogonal(features), 1, 2 * features) < 1e-9
        assert closest(orthogonal(features), 2 * features, 2 * features + 1) == pytest.approx(1)
    assert closest(nearly_orthogonal(8), 1, 8) < 0.25 and 0.6 < closest(nearly_orthogonal(8), 16, 17) < 0.7
    assert closest(DISTINCT, 1, 28) < 0.25


@pytest.mark.parametrize(
    ("having", "lacking", "values"),
    [
        ([[0.01, 0.02], [0.05, 0.09]], [[0.8, 0.75], [0.9, 1.0]], (0.09, (0.8 + 0.75) / 2)),
        ([[0.01, 0.3], [0.05, 0.09]], [[0.8, 0.75], [0.6, 1.0]], (0.3, (0.6 + 0.75) / 2)),
        ([[0.01, 0.3], [0.9, 0.9]], [[0.8, 0.75], [0.6, 1.0]], (0.9, None)),
    ],
)
def test_values_of_losses_made_by_hand(having, lacking, values):
    found = values_of(STUDY, losses(tensor(having), tensor(lacking)))
    assert found == dict(zip(("curriculum-learns", "without-it-fails"), map(pytest.approx, values), strict=True))


@pytest.mark.parametrize(
    ("learned", "without", "verdicts"),
    [
        (0.09, 0.75, ("met", "supported")),
        (0.09, 0.6, ("met", "not supported")),
        (0.11, 0.75, ("not met", "not measured")),
    ],
)
def test_what_fails_without_the_curriculum_is_judged_where_it_is_learned_with_it(learned, without, verdicts):
    """And counts as a question of ours: the study of depth judges the paper's sentence."""
    seen = losses(tensor([[0.01, 0.02] * 7, [0.05, learned] * 7]), torch.full((2, 14), without))
    assert tuple(one.verdict for one in STUDY.judge(seen, "quick")) == verdicts


def test_a_seed_is_one_unit_of_both_lengths():
    found = results_of(STUDY, losses(tensor([[0.01, 0.02], [0.05, 0.09]]), tensor([[0.8, 0.75], [0.9, 1.0]])))
    assert found["curriculum-learns"].units == pytest.approx((0.05, 0.09))
    assert found["without-it-fails"].units == pytest.approx((0.8, 0.75))
    unlearned = results_of(STUDY, losses(tensor([[0.9, 0.9]] * 2), tensor([[0.8, 0.75], [0.9, 1.0]])))
    assert unlearned["without-it-fails"].units == ()  # it is not judged


def runs():
    """Two and three steps with the curriculum, then without it: final losses 0.1 to 0.8."""
    made = []
    for at, (experiment, partials) in enumerate(
        zip(experiments(SETTING).values(), (TWO, THREE, TWO, THREE), strict=True)
    ):
        values = {("test", "loss"): [[1, 1, 0.1 + 0.2 * at], [1, 1, 0.2 + 0.2 * at]]}
        for symbol in experiment.task.asked:
            values["test", f"partial_{symbol}"] = [member[symbol - 1] for member in partials]
        made.append(HandMadeRun(experiment, STEPS, values))
    return made


def test_losses_are_read_with_the_curriculum_first_in_table_and_curves():
    asked = [(one.task.asked, one.label) for one in experiments(SETTING).values()]
    assert asked == [
        ((1, 2), "2 steps, with curriculum"), ((1, 2, 3), "3 steps, with curriculum"),
        ((2,), "2 steps, no curriculum"), ((3,), "3 steps, no curriculum"),
    ]  # fmt: skip
    seen = STUDY.see(runs(), SETTING)
    torch.testing.assert_close(seen.having, tensor([[0.1, 0.2], [0.3, 0.4]]))
    torch.testing.assert_close(seen.lacking, tensor([[0.5, 0.6], [0.7, 0.8]]))
    found = STUDY.analysis(runs(), SETTING)
    two, three, _, alone = found.tables[0].rows
    late, early = 100 + 200 / 3, 200 / 3  # from 1 down to 0.25: a half is two thirds of the way
    assert two == (
        "2 steps, with curriculum", 2, 2, pytest.approx(100), pytest.approx((late + early) / 2), "1 of 2",
        pytest.approx(0.15), pytest.approx(0.1),
    )  # fmt: skip
    assert three[1:6] == (0, 2, pytest.approx(50), None, None)
    assert alone[1:6] == (0, 2, None, None, None)
    curves = found.figures[0].lines
    assert [(one.label, one.mean) for one in curves] == [
        ("x_1", (1, 0.5, 0)),
        ("x_2", (1, 0.625, 0.25)),
        ("x_2 without the curriculum", (1, 0.625, 0.25)),
    ]


TIMES = [0, 20, 40, 60]


@pytest.mark.parametrize(("setting", "steps"), [(QUICK, 2), (PAPER, 3), (SMOKE, 2)], ids=["quick", "paper", "smoke"])
def test_both_kinds_differ_in_what_is_asked_alone(setting, steps):
    mixed, alone = mixture.experiments(setting).values()
    assert (mixed.task.asked, alone.task.asked) == (tuple(range(1, steps + 1)), (steps,))
    assert mixed.task.replace(asked_steps=(steps,)) == alone.task
    assert replace(mixed, task=alone.task, label=alone.label) == alone


def by_step(mixed, alone):
    return seen_by_hand(mixture.Seen, steps=TIMES, mixed=tensor(mixed), alone=tensor(alone))


FLAT, FAST, SLOW = [1.0, 1.0, 1.0, 0.95], [1.0, 0.1, 0.0, 0.0], [1.0, 1.0, 0.9, 0.3]
HALF = [1.0, 0.9, 0.9, 0.9]  # below 0.93, and not retrieved


def test_values_of_a_mixture_made_by_hand():
    # in order, and the end; the first step alone; the end first; nothing
    found = by_step([[FAST, SLOW], [FAST, FLAT], [SLOW, FAST], [FLAT, FLAT]], [FLAT, FLAT, SLOW, HALF])
    assert values_of(mixture.STUDY, found) == {
        "mixture-teaches-end": pytest.approx((1 + 0 + 0 + 0) / 4),  # the third learns the end either way
        "end-alone-fails": 0.5,
        "nearer-first": pytest.approx(2 / 3),
    }
    assert results_of(mixture.STUDY, found)["mixture-teaches-end"].units == (1.0, 0.0, 0.0, 0.0)
    worse = by_step([[FAST, FLAT]], [SLOW])
    assert values_of(mixture.STUDY, worse)["mixture-teaches-end"] == -1
    nothing = values_of(mixture.STUDY, by_step([[FLAT, FLAT]] * 2, [FLAT] * 2))
    assert nothing == {"mixture-teaches-end": 0.0, "end-alone-fails": None, "nearer-first": None}


def test_times_closer_than_two_evaluations_are_no_order():
    together = [1.0, 0.9, 0.2, 0.0]
    found = by_step([[together, [1.0, 0.8, 0.2, 0.0]], [FAST, SLOW]], [FLAT, FLAT])
    assert results_of(mixture.STUDY, found)["nearer-first"].units == (1.0,)


def test_losses_are_read_by_step_in_multiples_of_guessing():
    mixed, alone = (replace(one, members=one.members.take(range(2))) for one in mixture.experiments(QUICK).values())
    ones = [[0.5] * 4] * 2
    values = {
        ("test", "loss"): ones,
        ("test", "loss", "none", "step 1"): [[0.5, 0.05, 0.0, 0.0], [0.5, 0.5, 0.45, 0.15]],
        ("test", "loss", "none", "step 2"): [[0.5, 0.5, 0.45, 0.15], [0.5] * 4],
    }
    runs = [HandMadeRun(mixed, TIMES, values), HandMadeRun(alone, TIMES, {("test", "loss"): ones})]
    found = mixture.STUDY.see(runs, QUICK)
    torch.testing.assert_close(found.mixed, tensor([[FAST, SLOW], [SLOW, [1.0] * 4]]).double())
    torch.testing.assert_close(found.alone, torch.ones(2, 4).double())
    made = mixture.STUDY.analysis(runs, QUICK)
    assert [one.label for one in made.figures[0].lines] == ["x_1, mixed depths", "x_2, mixed depths", "x_2 alone"]
    assert made.tables[0].rows[0] == (1000, *map(pytest.approx, (0.0, 0.3, 1.0)))
    assert {MIXED, ALONE} == set(mixture.experiments(QUICK))
