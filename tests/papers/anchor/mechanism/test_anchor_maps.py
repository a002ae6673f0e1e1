"""Maps by the anchor's position, on patterns and models made by hand."""

import pytest
import torch

from anchorlab.papers.anchor.mechanism.anchor_maps import anchor_maps, read_anchor_maps
from anchorlab.tasks import task
from tests.papers.hand_made_models import two_layers


def reading(places):
    """Patterns `[batch query key]` whose every row reads one place of its sequence."""
    return torch.nn.functional.one_hot(places, 9).float().unsqueeze(1).repeat(1, 9, 1)


def test_patterns_of_the_anchors_position_alone_of_nothing_and_of_contents_alone():
    anchors = torch.tensor([2, 2, 5, 5, 5, 5])
    contents = torch.tensor([0, 7, 0, 7, 0, 7])  # as often with either anchor
    patterns = torch.stack([reading(anchors + 1), torch.full((6, 9, 9), 1 / 9), reading(contents)])
    found = read_anchor_maps(patterns, anchors)
    assert found.positions.tolist() == [2, 5]
    assert found.explained.tolist() == pytest.approx([1, 0, 0])
    assert found.own_apart.tolist() == pytest.approx([0, 0, 1 / 2])
    assert found.other_apart.tolist() == pytest.approx([1, 0, 1 / 2])
    assert found.maps[0, :, 4].tolist() == [reading(torch.tensor([3, 6]))[place, 4].tolist() for place in range(2)]


def test_places_count_by_their_sequences():
    # Two sequences have their anchor at 0 and read 1; of four with it at 4 one reads 1, the others 5. In either column
    # the mean is 1/2, those of the places are 1 and 1/4, or 0 and 3/4.
    anchors, places = torch.tensor([0, 4, 0, 4, 4, 4]), torch.tensor([1, 1, 1, 5, 5, 5])
    found = read_anchor_maps(reading(places)[None], anchors)
    assert found.explained.tolist() == [pytest.approx((2 / 4 + 4 / 16) / (6 / 4))]
    assert found.own_apart.tolist() == [pytest.approx((2 * 0 + 3 / 4 + 3 * 1 / 4) / 6)]
    assert found.other_apart.tolist() == [pytest.approx((2 * 3 / 4 + 0 + 3 * 1) / 6)]


def test_the_first_row_does_not_count_as_apart():
    patterns = torch.zeros(1, 2, 9, 9)
    patterns[..., 0] = 1
    patterns[0, 1, 0] = torch.eye(9)[3]  # another first row alone
    found = read_anchor_maps(patterns, torch.tensor([1, 6]))
    assert found.other_apart.tolist() == [0.0]


def test_other_positions_are_averaged():
    anchors = torch.tensor([0, 4, 7])
    found = read_anchor_maps(reading(torch.tensor([1, 1, 5]))[None], anchors)
    # The first is 0 from the second's and 1 from the third's, which is 1 from both.
    assert found.other_apart.tolist() == [pytest.approx((1 / 2 + 1 / 2 + 1) / 3)]


def test_a_model_whose_layer_2_reads_after_the_anchor_follows_it():
    batch = task("anchor/identity").sample("test", 200, seed=0)
    found = anchor_maps(two_layers((1, 1), (1, 0)), batch)
    assert found.positions.tolist() == list(range(8))
    assert found.explained.tolist() == pytest.approx([1, 1], abs=1e-5)
    assert found.own_apart.tolist() == pytest.approx([0, 0], abs=1e-5)
    for member, after in enumerate((1, 0)):
        for place in range(8):
            assert found.maps[member, place, 8].tolist() == pytest.approx(torch.eye(9)[place + after].tolist())
