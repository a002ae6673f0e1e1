"""Subspaces and principal angles of closed form."""

import pytest
import torch

from anchorlab.papers.retrieval.buffers.subspaces import against_random, overlap, projector, subspace

X, Y, Z = torch.eye(3, dtype=torch.float64).unsqueeze(-1)
PLANE = torch.cat([X, Y], dim=1)
SLANTED = X / 2 + Y * 3**0.5 / 2  # 60 degrees from x
TILTED = torch.cat([X / 2 + Z * 3**0.5 / 2, Y], dim=1)  # shares y with the plane, and has 60 degrees from x


def test_a_subspace_holds_nearly_all_squares():
    rows = torch.diag(torch.tensor([10.0, 2.0, 0.5, 0.0], dtype=torch.float64))  # squares 100, 4, 0.25
    basis = subspace(rows)
    torch.testing.assert_close(basis.abs(), torch.eye(4, dtype=torch.float64)[:, :2], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("one", "other", "expected", "ratio"),
    [
        (X, Y, 0, 0),
        (X, SLANTED, 0.25, 0.75),  # random lines: 1 / 3
        (SLANTED, PLANE, 1, 1.5),  # a random line and a random plane: 2 / 3
        (PLANE, X, 1, 1.5),
        (PLANE, TILTED, 0.625, 0.9375),  # squared cosines 1 and 1 / 4
    ],
)
def test_overlaps(one, other, expected, ratio):
    assert float(overlap(one, other)) == pytest.approx(expected, abs=1e-12)
    assert float(against_random(one, other)) == pytest.approx(ratio, abs=1e-12)


def test_random_subspaces_overlap_as_random_ones():
    draw = torch.Generator().manual_seed(0)

    def basis(dimensions):
        return torch.linalg.qr(torch.randn(20, dimensions, generator=draw, dtype=torch.float64)).Q

    for one, other in ((3, 5), (5, 3), (4, 4), (8, 2)):
        found = torch.stack([against_random(basis(one), basis(other)) for _ in range(400)])
        assert float(found.mean()) == pytest.approx(1, abs=0.06)


def test_a_projector_keeps_its_subspace_alone():
    torch.testing.assert_close(projector(PLANE), torch.diag(torch.tensor([1.0, 1.0, 0.0], dtype=torch.float64)))
