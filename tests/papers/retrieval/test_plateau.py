"""What it takes to leave the plateau, on losses and runs made by hand."""

import math

import pytest
import torch
from torch import tensor

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
