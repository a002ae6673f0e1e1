import pytest
import torch

from anchorlab.studies.anchor.two_distances import DISTANCES, measure_heads, unrest
from anchorlab.tasks import task


def shifting(length: int, by: int) -> torch.Tensor:
    """The pattern of a causal head that shifts; the first rows attend to the first position."""
    pattern = torch.zeros(length, length)
    for query in range(length):
        pattern[query, max(0, query - by)] = 1
    return pattern


def test_heads_made_by_hand_are_told_apart():
    batch = task("anchor/two-distances").sample("test", 60, seed=0)
    length = batch.inputs.shape[1]
    first = torch.stack([shifting(length, 2), shifting(length, 1)]).expand(1, 60, 2, length, length)
    keys = batch.latents["key_positions"][:, 0]
    second = torch.zeros(1, 60, 2, length, length)
    second[0, torch.arange(60), :, :, :] = torch.nn.functional.one_hot(keys, length).float()[:, None, None]
    heads = measure_heads(first, second, batch)
    assert heads.shifts.tolist() == [[2, 1]]
    assert heads.both_shifts.tolist() == [True]
    assert heads.mass[0].tolist() == pytest.approx([1.0, 1.0])
    assert heads.unrest[0].tolist() == pytest.approx([0.0, 0.0], abs=1e-6)
    assert {rule: heads.sources[rule].tolist() for rule in heads.sources} == {"near": [[1, 1]], "far": [[2, 2]]}


def test_two_heads_that_shift_alike_are_not_the_two_shifts():
    batch = task("anchor/two-distances").sample("test", 20, seed=0)
    first = torch.stack([shifting(9, 1), shifting(9, 1)]).expand(1, 20, 2, 9, 9)
    assert measure_heads(first, first, batch).both_shifts.tolist() == [False]


def test_unrest_by_hand():
    # Two sequences; the second row goes to either position in turn: its mean is half and half, half away from both.
    pattern = torch.zeros(1, 2, 1, 2, 2)
    pattern[0, :, 0, 0, 0] = 1
    pattern[0, 0, 0, 1, 0] = pattern[0, 1, 0, 1, 1] = 1
    assert unrest(pattern).tolist() == [[pytest.approx(0.5)]]


def test_the_distances_are_those_of_the_task():
    batch = task("anchor/two-distances").sample("train", 200, seed=0)
    apart = batch.latents["key_positions"][:, 0] - batch.latents["anchor_positions"][:, 0]
    for rule, distance in DISTANCES.items():
        assert set(apart[batch.group == batch.groups.index(rule)].tolist()) == {distance}
