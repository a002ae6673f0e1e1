import pytest
import torch
from torch.nn.functional import one_hot

from anchorlab.studies.anchor.condensation import share_broadcasting, typical


def test_heads_that_broadcast_from_one_place_are_counted():
    anchors = torch.tensor([2, 3, 4, 5])
    from_key = one_hot(anchors + 1, 9).float().unsqueeze(1).repeat(1, 9, 1)
    from_anchor = one_hot(anchors, 9).float().unsqueeze(1).repeat(1, 9, 1)
    even = torch.full((4, 9, 9), 1 / 9)
    heads = torch.stack([from_key, from_key, from_anchor, 0.1 * from_key + 0.9 * even], dim=1)
    # The third broadcasts from elsewhere; the fourth looks at the key most, with a fifth of its attention.
    assert share_broadcasting(heads[None], anchors).tolist() == [pytest.approx(0.5)]
    assert share_broadcasting(heads[None, :, :2], anchors).tolist() == [1.0]


def test_the_typical_member_has_the_median_of_those_in_question():
    values = torch.tensor([0.9, 0.1, 0.5, 0.6])
    assert typical(values, torch.tensor([True, True, False, True])) == 3
    assert typical(values, torch.zeros(4, dtype=torch.bool)) == 2  # of an even number the lower
