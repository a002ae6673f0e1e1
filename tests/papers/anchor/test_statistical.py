"""The statistical study's numbers, on scores and models made by hand."""

from dataclasses import replace

import pytest
import torch
from torch import tensor

from anchorlab.papers.anchor.statistical import CONTENT, KINDS, QUICK, STUDY, Scores, experiments, see
from tests.papers.hand_made_outputs import hand_made_ensemble
from tests.papers.hand_made_runs import HandMadeRun, results_of, values_of, verdicts_of


def scored(right=0.8, unchanged=1.0, changed=0.0, x=0.8, successor=0.2, distance=0.0):
    """Two members that differ by 0.02 in everything."""
    numbers = right, unchanged, changed, x, successor, distance
    return Scores(*(tensor([number - 0.01, number + 0.01]) for number in numbers))


GOOD = {(kind, content): scored() for kind in KINDS for content in CONTENT}


def test_values_inside_the_bands():
    seen = {
        **GOOD,
        ("first", "unseen"): scored(x=0.84, successor=0.16, distance=0.04, right=0.84, unchanged=0.96, changed=0.04),
        ("second", "unseen"): scored(x=0.76, successor=0.5, distance=0.1),
        ("second", "seen"): scored(x=0.78, successor=0.9, distance=0.9),
    }
    assert values_of(STUDY, seen) == {
        "all-labels": pytest.approx(0.81),
        "unchanged": pytest.approx(0.99),
        "changed": pytest.approx(0.01),
        "probability-of-x": pytest.approx(0.82),
        "second-kind": pytest.approx(0.77),
        "distance": pytest.approx(0.07),
    }
    assert set(verdicts_of(STUDY, seen).values()) == {"agrees at small scale"}
    # Kinds and contents of one seed are no units of their own.
    assert {name: len(one.units) for name, one in results_of(STUDY, seen).items()} == dict.fromkeys(
        values_of(STUDY, seen), 2
    )
    assert results_of(STUDY, seen)["distance"].units == pytest.approx((0.06, 0.08))


def test_scores_of_models_made_by_hand():
    """Member 0 puts out x + 1 on training placements and x in test, member 1 the other way round."""
    runs = []
    for experiment in experiments(replace(QUICK, seeds=2)):
        chosen = experiment.task

        def outputs(inputs, successor_in, chosen=chosen):
            answers = chosen.oracle(inputs).answers[:, 0] + (chosen.split_of(inputs) == successor_in)
            return answers[:, None].expand(-1, inputs.shape[1])

        members = [lambda inputs, of=of, put=outputs: put(inputs, of) for of in (0, 1)]
        ensemble = hand_made_ensemble(members, size=chosen.shape.output_size)
        runs.append(HandMadeRun(experiment, (0,), {}, {0: ensemble}))
    seen = see(runs)
    e = torch.e / (torch.e + 200)  # the softmax of one 1 among 201 tokens
    low = 1 / (torch.e + 200)
    distance_of_x = ((0.8 - e) + (0.2 - low) + 199 * low) / 2
    distance_of_successor = ((0.8 - low) + (0.2 - e) + 199 * low) / 2
    assert list(seen) == [("first", "seen"), ("first", "unseen"), ("second", "seen"), ("second", "unseen")]
    for (kind, content), found in seen.items():
        order = [0, 1] if content == "seen" else [1, 0]  # first the member that puts out x + 1
        torch.testing.assert_close(found.unchanged[order], tensor([0.0, 1.0]))
        torch.testing.assert_close(found.changed[order], tensor([1.0, 0.0]))
        share = 0.2 if kind == "first" else float(found.right[order[0]])
        assert share == pytest.approx(0.2, abs=0.03)  # of 2000 labels drawn one by one: three deviations
        torch.testing.assert_close(found.right[order], tensor([share, 1 - share]))
        torch.testing.assert_close(found.x[order], tensor([low, e]))
        torch.testing.assert_close(found.successor[order], tensor([e, low]))
        torch.testing.assert_close(found.distance[order], tensor([distance_of_successor, distance_of_x]))
