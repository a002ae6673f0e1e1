import math

import pytest
import torch

from anchorlab.errors import SpecError
from anchorlab.lens import condensation, cosine_similarity, head_similarity


def test_cosine_of_known_angles():
    rows = torch.tensor([[2.0, 0.0], [0.0, 0.0]])
    columns = torch.tensor([[1.0, 1.0], [0.0, 3.0], [-1.0, 0.0]])
    expected = torch.tensor([[0.5**0.5, 0.0, -1.0], [0.0, 0.0, 0.0]])
    assert torch.allclose(cosine_similarity(rows, columns), expected)


def test_equal_heads_are_alike():
    pattern = torch.eye(3).expand(2, 4, 3, 3)
    assert head_similarity(pattern).item() == pytest.approx(1)


def test_three_heads_by_hand():
    shift, stay = torch.eye(3).roll(-1, dims=1), torch.eye(3)
    pattern = torch.stack([stay, stay, shift]).unsqueeze(0)
    assert head_similarity(pattern).item() == pytest.approx(1 / 3)  # one pair of three is alike, the others orthogonal


def test_members_are_kept_apart():
    pattern = torch.stack([torch.eye(2), torch.eye(2).flip(0)])
    both = torch.stack([pattern[[0, 0]], pattern]).unsqueeze(1)
    assert head_similarity(both).tolist() == pytest.approx([1, 0])


def test_single_head():
    with pytest.raises(SpecError, match="a single head"):
        head_similarity(torch.ones(1, 1, 2, 2))


def test_neurons_of_one_line_are_condensed_whatever_their_sign_and_size():
    direction = torch.tensor([1.0, -2.0, 2.0])
    weights = direction.unsqueeze(-1) * torch.tensor([1.0, -3.0, 0.1])
    assert condensation(weights).item() == pytest.approx(1)


def test_pairs_of_neurons_count_by_their_norms():
    # Along x: 3 and 1; along y: 2. The pairs: |cos| 1 with weight 3, 0 with weight 6, 0 with weight 2.
    weights = torch.tensor([[3.0, 1.0, 0.0], [0.0, 0.0, 2.0]])
    assert condensation(weights).item() == pytest.approx(3 / 11)
    assert condensation(torch.eye(4).expand(2, 4, 4)).tolist() == [0, 0]


def test_random_neurons_are_as_condensed_as_the_law_says():
    weights = torch.randn(300, 500, generator=torch.Generator().manual_seed(0))
    assert condensation(weights).item() == pytest.approx((2 / (math.pi * 300)) ** 0.5, rel=0.02)


def test_single_neuron():
    with pytest.raises(SpecError, match="a single neuron"):
        condensation(torch.ones(3, 1))
