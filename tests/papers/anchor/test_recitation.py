"""Forward against backward, on accuracies given by hand."""

from dataclasses import replace

import pytest
import torch

from anchorlab.papers.anchor.recitation import PAPER, QUICK, STUDY, Length, Seen, experiments, see
from tests.papers.hand_made_runs import HandMadeRun, values_of, verdicts_of


def length(forward, backward) -> Length:
    return Length("", torch.tensor(forward), torch.tensor(backward))


def seen(early, late=None, largest=(1.0, 0.98)) -> Seen:
    return Seen(length(*early), length(*(late or early)), torch.tensor(largest))


def test_sizes_are_compared_where_neither_nothing_nor_all_is_learned():
    # Three sizes of two members: at chance, in between with forward ahead, both solved.
    found = seen(([[0.02, 0.04], [0.5, 0.9], [1.0, 1.0]], [[0.06, 0.02], [0.3, 0.7], [0.99, 0.99]]))
    assert found.early.judged.tolist() == [False, True, False]
    assert values_of(STUDY, found) == {
        "every-size-early": 1.0,
        "every-size-late": 1.0,
        "difference-early": pytest.approx(0.2),
        "difference-late": pytest.approx(0.2),
        "learns": pytest.approx(0.99),
    }
    assert set(verdicts_of(STUDY, found).values()) == {"agrees at small scale"}


def test_a_size_is_won_by_the_mean_over_seeds_and_a_tie_is_no_win():
    early = [[0.5, 0.5], [0.2, 0.9], [0.9, 0.2]], [[0.5, 0.5], [0.5, 0.5], [0.6, 0.6]]
    late = [[0.5, 0.5], [0.7, 0.9], [0.9, 0.4]], [[0.5, 0.5], [0.5, 0.5], [0.6, 0.6]]
    found = seen(early, late, largest=(0.9, 0.98))
    # early: a tie, 0.05 and -0.05; late: a tie, 0.3 and 0.05
    assert values_of(STUDY, found) == {
        "every-size-early": pytest.approx(1 / 3),
        "every-size-late": pytest.approx(2 / 3),
        "difference-early": pytest.approx(0.0, abs=1e-6),
        "difference-late": pytest.approx(0.35 / 3),
        "learns": pytest.approx(0.94),
    }
    every_size = STUDY.claims[0](found)
    assert every_size.detail == "1 of 3 sizes that can be judged"
    assert every_size.units == pytest.approx((1 / 3, 1 / 3))  # each seed wins at one size, where the other loses
    assert verdicts_of(STUDY, found) == {
        "every-size-early": "differs at small scale",
        "every-size-late": "differs at small scale",
        "difference-early": "differs at small scale",
        "difference-late": "agrees at small scale",
        "learns": "differs at small scale",
    }


def test_nothing_is_judged_where_nothing_is_learned():
    nothing = torch.zeros(4, 3).tolist()
    found = seen((nothing, nothing))
    assert not found.early.judged.any()
    assert {name for name, value in values_of(STUDY, found).items() if value is not None} == {"learns"}


def runs_of(setting):
    """At each evaluation other numbers: by size (tenths), step (hundredths) and member (thousandths)."""
    runs = []
    for place, experiment in enumerate(experiments(setting)):
        whole = experiment.steps
        steps = [0, whole // 10, whole // 4, whole // 2, whole]
        values = {}
        for split, group, base in (
            ("test", "forward", 0.0),
            ("test", "backward", 0.5),
            ("test", "all", 0.4),
            ("train", "forward", 0.8),
            ("train", "backward", 0.8),
            ("train", "all", 0.8),
        ):
            values[split, "accuracy", "none", group] = [
                [base + place / 10 + at / 100 + member / 1000 for at in range(5)] for member in range(2)
            ]
        runs.append(HandMadeRun(experiment, steps, values))
    return runs


def test_both_lengths_are_read_by_size_and_direction():
    setting = replace(QUICK, seeds=2, sizes=(500, 1000))
    found = see(runs_of(setting))
    assert (found.early.name, found.late.name) == ("200 steps", "800 steps")
    sizes = torch.tensor([[0.0, 0.001], [0.1, 0.101]]).double()
    torch.testing.assert_close(found.early.forward, sizes + 0.02)
    torch.testing.assert_close(found.late.forward, sizes + 0.04)
    torch.testing.assert_close(found.early.backward, sizes + 0.52)
    torch.testing.assert_close(found.late.backward, sizes + 0.54)
    assert found.largest.tolist() == pytest.approx([0.54, 0.541])


def test_the_papers_early_length_is_400_epochs():
    found = see(runs_of(replace(PAPER, seeds=2, sizes=(500, 1000))))
    assert (found.early.name, found.late.name) == ("400 epochs", "4000 epochs")
    torch.testing.assert_close(found.early.forward[0], torch.tensor([0.01, 0.011]).double())
