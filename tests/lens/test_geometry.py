import pytest
import torch

from anchorlab.errors import SpecError
from anchorlab.lens import cosine_similarity, head_similarity


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
