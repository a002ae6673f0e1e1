"""Recitation forward and backward, and statistical labels, on accuracies, scores and models made by hand."""

from dataclasses import replace

import pytest
import torch
from torch import tensor

from anchorlab.papers.anchor import statistical
from anchorlab.papers.anchor.recitation import PAPER, QUICK, STUDY, Length, Seen, experiments
from tests.papers.hand_made_outputs import hand_made_ensemble
from tests.papers.hand_made_runs import HandMadeRun, results_of, seen_by_hand, values_of


def length(forward, backward) -> Length:
    return Length("", torch.tensor(forward), torch.tensor(backward))


def seen(early, late=None, largest=(1.0, 0.98)) -> Seen:
    return seen_by_hand(Seen, early=length(*early), late=length(*(late or early)), largest=torch.tensor(largest))


def test_sizes_are_compared_where_neither_nothing_nor_all_is_learned():
    # Three sizes of two members: at chance, in between with forward ahead, both solved.
    found = seen(([[0.02, 0.04], [0.5, 0.9], [1.0, 1.0]], [[0.06, 0.02], [0.3, 0.7], [0.99, 0.99]]))
    assert found.early.judged.tolist() == [False, True, False]
    assert values_of(STUDY, found) == {
        "every-size-early": 1.0, "every-size-late": 1.0, "difference-early": pytest.approx(0.2),
        "difference-late": pytest.approx(0.2), "learns": pytest.approx(0.99),
    }  # fmt: skip
    nothing = torch.zeros(4, 3).tolist()
    found = seen((nothing, nothing))
    assert not found.early.judged.any()
    assert {name for name, value in values_of(STUDY, found).items() if value is not None} == {"learns"}


def test_a_size_is_won_seed_by_seed_and_a_tie_is_no_win():
    early = [[0.5, 0.5], [0.2, 0.9], [0.9, 0.2]], [[0.5, 0.5], [0.5, 0.5], [0.6, 0.6]]
    late = [[0.5, 0.5], [0.7, 0.9], [0.9, 0.4]], [[0.5, 0.5], [0.5, 0.5], [0.6, 0.6]]
    found = seen(early, late, largest=(0.9, 0.98))
    # early, each seed wins at one size, where the other loses; late both win at one, and the first at another
    assert values_of(STUDY, found) == {
        "every-size-early": pytest.approx(1 / 3), "every-size-late": pytest.approx(1 / 2),
        "difference-early": pytest.approx(0.0, abs=1e-6), "difference-late": pytest.approx(0.35 / 3),
        "learns": pytest.approx(0.94),
    }  # fmt: skip
    every_size = STUDY.claims[0](found)
    assert every_size.detail == "on average ahead at 1 of 3 sizes that can be judged"
    assert every_size.units == pytest.approx((1 / 3, 1 / 3))


def runs_of(setting):
    """At each evaluation other numbers: by size (tenths), step (hundredths) and member (thousandths)."""
    runs = []
    for place, experiment in enumerate(experiments(setting).values()):
        whole = experiment.steps
        steps = [0, whole // 10, whole // 4, whole // 2, whole]
        values = {
            ("test", "accuracy", "none", group): [
                [base + place / 10 + at / 100 + member / 1000 for at in range(5)] for member in range(2)
            ]
            for group, base in (("forward", 0.0), ("backward", 0.5), ("all", 0.4))
        }
        runs.append(HandMadeRun(experiment, steps, values))
    return runs


def test_both_lengths_are_read_by_size_and_direction():
    setting = replace(QUICK, seeds=2, sizes=(500, 1000))
    found = STUDY.see(runs_of(setting), setting)
    assert (found.early.name, found.late.name) == ("200 steps", "800 steps")
    sizes = torch.tensor([[0.0, 0.001], [0.1, 0.101]]).double()
    torch.testing.assert_close(found.early.forward, sizes + 0.02)
    torch.testing.assert_close(found.late.forward, sizes + 0.04)
    torch.testing.assert_close(found.early.backward, sizes + 0.52)
    torch.testing.assert_close(found.late.backward, sizes + 0.54)
    assert found.largest.tolist() == pytest.approx([0.54, 0.541])
    setting = replace(PAPER, seeds=2, sizes=(500, 1000))
    found = STUDY.see(runs_of(setting), setting)
    assert (found.early.name, found.late.name) == ("400 epochs", "4000 epochs")
    torch.testing.assert_close(found.early.forward[0], torch.tensor([0.01, 0.011]).double())


def scored(right=0.8, unchanged=1.0, changed=0.0, x=0.8, successor=0.2, distance=0.0):
    """Two members that differ by 0.02 in everything."""
    numbers = right, unchanged, changed, x, successor, distance
    return statistical.Scores(*(tensor([number - 0.01, number + 0.01]) for number in numbers))


GOOD = {(kind, content): scored() for kind in statistical.KINDS for content in statistical.CONTENT}


def test_values_of_scores_inside_the_bands():
    scores = {
        **GOOD,
        ("first", "unseen"): scored(x=0.84, successor=0.16, distance=0.04, right=0.84, unchanged=0.96, changed=0.04),
        ("second", "unseen"): scored(x=0.76, successor=0.5, distance=0.1),
        ("second", "seen"): scored(x=0.78, successor=0.9, distance=0.9),
    }
    seen = seen_by_hand(statistical.Seen, scores=scores)
    assert values_of(statistical.STUDY, seen) == {
        "all-labels": pytest.approx(0.81), "unchanged": pytest.approx(0.99), "changed": pytest.approx(0.01),
        "probability-of-x": pytest.approx(0.82), "second-kind": pytest.approx(0.77), "distance": pytest.approx(0.07),
    }  # fmt: skip
    # Kinds and contents of one seed are no units of their own.
    found = results_of(statistical.STUDY, seen)
    assert {len(one.units) for one in found.values()} == {2}
    assert found["distance"].units == pytest.approx((0.06, 0.08))


def test_scores_of_models_made_by_hand():
    """Member 0 puts out x + 1 on training placements and x in test, member 1 the other way round."""
    runs = []
    for experiment in statistical.experiments(replace(statistical.QUICK, seeds=2)).values():
        chosen = experiment.task

        def outputs(inputs, successor_in, chosen=chosen):
            answers = chosen.oracle(inputs).answers[:, 0] + (chosen.split_of(inputs) == successor_in)
            return answers[:, None].expand(-1, inputs.shape[1])

        members = [lambda inputs, of=of, put=outputs: put(inputs, of) for of in (0, 1)]
        ensemble = hand_made_ensemble(members, size=chosen.shape.output_size)
        runs.append(HandMadeRun(experiment, (0,), {}, {0: ensemble}))
    scores = statistical.STUDY.see(runs, statistical.QUICK).scores
    e = torch.e / (torch.e + 200)  # the softmax of one 1 among 201 tokens
    low = 1 / (torch.e + 200)
    distance_of_x = ((0.8 - e) + (0.2 - low) + 199 * low) / 2
    distance_of_successor = ((0.8 - low) + (0.2 - e) + 199 * low) / 2
    assert list(scores) == [("first", "seen"), ("first", "unseen"), ("second", "seen"), ("second", "unseen")]
    for (kind, content), found in scores.items():
        order = [0, 1] if content == "seen" else [1, 0]  # first the member that puts out x + 1
        torch.testing.assert_close(found.unchanged[order], tensor([0.0, 1.0]))
        torch.testing.assert_close(found.changed[order], tensor([1.0, 0.0]))
        share = 0.2 if kind == "first" else float(found.right[order[0]])
        assert share == pytest.approx(0.2, abs=0.03)  # of 2000 labels drawn one by one: three deviations
        torch.testing.assert_close(found.right[order], tensor([share, 1 - share]))
        torch.testing.assert_close(found.x[order], tensor([low, e]))
        torch.testing.assert_close(found.successor[order], tensor([e, low]))
        torch.testing.assert_close(found.distance[order], tensor([distance_of_successor, distance_of_x]))
