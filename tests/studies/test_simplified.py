import pytest
import torch
from torch.nn.functional import one_hot

from anchorlab.studies.anchor.simplified import measure
from anchorlab.tasks import task


def made_by_hand(batch, length=9):
    """Figure 16 as patterns: the anchor's row reads the key, all others the anchor; then all read the anchor's row."""
    anchors, keys = batch.latents["anchor_positions"][:, 0], batch.latents["key_positions"][:, 0]
    first = one_hot(anchors, length).float().unsqueeze(1).repeat(1, length, 1)
    first[torch.arange(len(anchors)), anchors] = one_hot(keys, length).float()
    second = one_hot(anchors, length).float().unsqueeze(1).repeat(1, length, 1)
    return first, second


def test_the_mechanism_of_the_paper_measures_one():
    batch = task("anchor/identity").sample("test", 40, seed=0)
    first, second = made_by_hand(batch)
    values = torch.eye(201)[batch.inputs]  # one direction per token
    rows = first @ values
    found = measure(first[None], rows[None], second[None], batch)
    for value in (found.carries, found.shift, found.broadcast, found.alike, found.second_broadcast):
        assert value.tolist() == [pytest.approx(1.0)]
    assert found.other.tolist() == [pytest.approx(0.0)]  # key and anchor are different tokens


def test_a_model_that_attends_everywhere_alike_measures_its_share():
    batch = task("anchor/identity").sample("test", 10, seed=0)
    even = torch.full((1, 10, 9, 9), 1 / 9)
    found = measure(even, torch.ones(1, 10, 9, 4), even, batch)
    for value in (found.carries, found.shift, found.broadcast, found.second_broadcast):
        assert value.tolist() == [pytest.approx(1 / 9)]
    assert found.alike.tolist() == found.other.tolist() == [pytest.approx(1.0)]


def test_members_are_kept_apart():
    batch = task("anchor/identity").sample("test", 10, seed=0)
    first, second = made_by_hand(batch)
    even = torch.full((10, 9, 9), 1 / 9)
    rows = torch.ones(2, 10, 9, 4)
    found = measure(torch.stack([even, first]), rows, torch.stack([even, second]), batch)
    assert found.carries.tolist() == [pytest.approx(1 / 9), pytest.approx(1.0)]
    assert found.second_broadcast.tolist() == [pytest.approx(1 / 9), pytest.approx(1.0)]
    assert found.broadcast.tolist() == [pytest.approx(1 / 9), pytest.approx(1.0)]
