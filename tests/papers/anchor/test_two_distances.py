"""What the heads of both layers do, on patterns made by hand."""

from dataclasses import replace

import pytest
import torch

from anchorlab.papers.anchor.two_distances import DISTANCES, QUICK, STUDY, Heads, experiments, unrest
from anchorlab.tasks import task
from tests.papers.hand_made_outputs import hand_made_ensemble
from tests.papers.hand_made_runs import results_of, run_ending, seen_by_hand, values_of


def shifting(length: int, by: int) -> torch.Tensor:
    """The pattern of a causal head that shifts; the first rows attend to the first position."""
    pattern = torch.zeros(length, length)
    for query in range(length):
        pattern[query, max(0, query - by)] = 1
    return pattern


def test_unrest_by_hand_and_the_distances_of_the_task():
    # Two sequences; the second row goes to either position in turn: its mean is half and half, half away from both.
    pattern = torch.zeros(1, 2, 1, 2, 2)
    pattern[0, :, 0, 0, 0] = 1
    pattern[0, 0, 0, 1, 0] = pattern[0, 1, 0, 1, 1] = 1
    assert unrest(pattern).tolist() == [[pytest.approx(0.5)]]
    batch = task("anchor/two-distances").sample("train", 200, seed=0)
    apart = batch.latents["key_positions"][:, 0] - batch.latents["anchor_positions"][:, 0]
    for rule, distance in DISTANCES.items():
        assert set(apart[batch.group == batch.groups.index(rule)].tolist()) == {distance}


GOOD = seen_by_hand(
    Heads,
    accuracy=torch.tensor([0.9, 1.0, 0.96, 0.97]),
    shifts=torch.tensor([[1, 2], [2, 1], [1, 2], [2, 1]]),
    mass=torch.tensor([[0.4, 0.8], [0.9, 0.5], [0.6, 0.6], [0.6, 0.6]]),
    unrest=torch.tensor([[0.1, 0.3], [0.2, 0.0], [0.1, 0.1], [0.1, 0.1]]),
    sources={
        "near": torch.tensor([[1, 1], [1, 1], [1, 1], [1, 2]]),
        "far": torch.tensor([[2, 2], [2, 2], [2, 2], [2, 2]]),
    },
)


def test_values_of_heads_made_by_hand_are_judged_where_they_learned():
    assert values_of(STUDY, GOOD) == {
        "learned": pytest.approx(0.9575), "two-shifts": 1.0, "shift-mass": pytest.approx(0.625),
        "stable": pytest.approx(0.125), "near-source": 0.875, "far-source": 1.0,
    }  # fmt: skip
    values = values_of(STUDY, seen_by_hand(Heads, **vars(GOOD) | {"accuracy": torch.full((4,), 0.89)}))
    assert [name for name, value in values.items() if value is not None] == ["learned"]


def test_values_of_heads_that_do_something_else():
    other = seen_by_hand(
        Heads,
        accuracy=torch.tensor([0.9, 0.9, 0.5, 0.95]),  # the third is not judged
        shifts=torch.tensor([[1, 1], [2, 1], [1, 2], [0, 2]]),
        mass=torch.tensor([[0.2, 0.4], [0.3, 0.3], [0.9, 0.9], [0.6, 0.6]]),
        unrest=torch.tensor([[0.1, 0.3], [0.2, 0.4], [0.0, 0.0], [0.4, 0.4]]),
        sources={  # the two rules swapped, but for one head of each
            "near": torch.tensor([[1, 2], [2, 2], [1, 1], [2, 2]]),
            "far": torch.tensor([[1, 1], [1, 1], [2, 2], [1, 2]]),
        },
    )
    assert values_of(STUDY, other) == {
        "learned": pytest.approx(0.8125), "two-shifts": pytest.approx(1 / 3), "shift-mass": pytest.approx(0.4),
        "stable": pytest.approx(0.3), "near-source": pytest.approx(1 / 6), "far-source": pytest.approx(1 / 6),
    }  # fmt: skip
    found = results_of(STUDY, other)  # two heads of one seed are one unit
    assert found["near-source"].units == (0.5, 0.0, 0.0)
    assert found["shift-mass"].units == pytest.approx((0.3, 0.3, 0.6))
    assert found["two-shifts"].interval == pytest.approx((1 - 0.95 ** (1 / 3), 0.865), abs=1e-3)  # binomial: 1 of 3


def attention(inputs):
    """Layer 0 shifts by 2 and by 1; in layer 1 head 0 reads the key and head 1 the anchor, 3 or 4."""
    length, rows = inputs.shape[1], len(inputs)
    anchors = ((inputs == 3) | (inputs == 4)).int().argmax(dim=1)
    keys = anchors + torch.where((inputs == 3).any(dim=1), 1, 2)
    first = torch.stack([shifting(length, 2), shifting(length, 1)]).expand(rows, 2, length, length)
    read = torch.nn.functional.one_hot(torch.stack([keys, anchors], dim=1), length).float()
    return torch.stack([first, read[:, :, None].expand(-1, -1, length, -1)], dim=1)


def test_patterns_and_accuracy_are_read_by_layer_and_split():
    (experiment,) = experiments(replace(QUICK, seeds=2)).values()
    uniform = torch.full((2, 2, 9, 9), 1 / 9)
    ensemble = hand_made_ensemble(
        [lambda inputs: inputs] * 2, [attention, lambda inputs: uniform.expand(len(inputs), -1, -1, -1, -1)], layers=2
    )
    seen = STUDY.see([run_ending(experiment, (0.99, 0.4), (0.1, 1.0), {1200: ensemble})], QUICK)
    assert seen.accuracy.tolist() == pytest.approx([0.99, 0.4]) and seen.learned.tolist() == [True, False]
    assert seen.shifts[0].tolist() == [2, 1] and seen.mass[0].tolist() == pytest.approx([1, 1], rel=1e-4)
    assert seen.unrest[0].tolist() == pytest.approx([0, 0], abs=1e-5)
    assert {rule: heads[0].tolist() for rule, heads in seen.sources.items()} == {"near": [1, 0], "far": [2, 0]}
