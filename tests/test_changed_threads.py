"""What decomposes matrices does so after torch's number of threads has grown, in a process of its own.

Once torch has worked with one thread and is then given two, a batched LU factorisation of matrices beyond about 100
rows reads pivots that nobody wrote. The first call fails alone, so each one here begins with the change.
"""

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from anchorlab.lens import principal_components, probe
from anchorlab.lens.weights.qk_ov import HeadCircuits
from anchorlab.models.edits import Truncate, apply_edits
from anchorlab.models.initialisation import draw_unit_embeddings
from anchorlab.papers.anchor.order import curve_coordinate
from anchorlab.theory.associative_descent import _cut
from anchorlab.theory.power_law import fit_power_law
from tests.documents import ROOT

SIZE = 200


def change_threads():
    """Let torch work with one thread, then give it two."""
    torch.set_num_threads(1)
    layer = nn.Linear(32, 32)
    layer(torch.randn(8, 32)).square().sum().backward()
    torch.bmm(torch.randn(20, 64, 64), torch.randn(20, 64, 64)).sum()
    torch.set_num_threads(2)


def close(found, expected):
    """Raise unless all numbers agree within rounding."""
    torch.testing.assert_close(torch.as_tensor(found), torch.as_tensor(expected), rtol=1e-5, atol=1e-5)


class OneHot(nn.Module):
    """Tells every token by a coordinate of its own."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding.from_pretrained(torch.eye(SIZE))

    def forward(self, inputs):
        return self.embed(inputs)


def probed():
    """A value that names the token says whether that is odd, in each sequence of all tokens."""
    inputs = torch.stack([torch.arange(SIZE).roll(shift) for shift in range(10)])
    found = probe(OneHot(), inputs, inputs % 2, "embed", shuffles=2)
    close(found.accuracy, torch.ones(1, 1, dtype=torch.float64))
    assert found.shuffled.amax() < 0.6  # of two labels


def components():
    """Points at +-a along each axis vary by a^2 along it."""
    lengths = torch.arange(SIZE, 0, -1, dtype=torch.float64)
    points = torch.diag(lengths)
    found = principal_components(torch.cat([points, -points])[None].expand(3, -1, -1), 5)
    close(found.explained, (lengths.square() / lengths.square().sum())[:5].expand(3, -1))
    close(found.directions.abs(), torch.eye(SIZE, dtype=torch.float64)[:5].expand(3, -1, -1))


def circuits():
    """A product with an orthogonal matrix has the singular values of the other factor."""
    lengths = torch.arange(SIZE, 0, -1, dtype=torch.float64)
    turned = torch.eye(SIZE, dtype=torch.float64).flip(0)
    stacked = torch.diag(lengths).expand(2, 1, 2, -1, -1), turned.expand(2, 1, 2, -1, -1)
    close(HeadCircuits(*stacked).singular_values, lengths.expand(2, 1, 2, -1))


def truncated():
    """The best approximation of a diagonal matrix keeps its largest entries; so does that of a product with it."""
    matrix = torch.diag(torch.arange(1.0, SIZE + 1)).expand(3, -1, -1)
    expected = torch.where(matrix > SIZE - 50, matrix, 0)
    close(apply_edits({"w": matrix}, [Truncate(weight="w", rank=50)])["w"], expected)
    weights = {"w": matrix, "v": torch.eye(SIZE).expand(3, -1, -1)}
    pair = apply_edits(weights, [Truncate(weight="w @ v", rank=50)])
    close(pair["w"] @ pair["v"], expected)


def orthonormal():
    """Orthonormal vectors have the identity as their products."""
    model = nn.ModuleDict({"embed": nn.Module(), "unembed": nn.Module()})
    model["embed"].W_E = nn.Parameter(torch.empty(SIZE, SIZE + 20))
    model["unembed"].W_U = nn.Parameter(torch.empty(SIZE + 20, SIZE))
    with torch.no_grad():
        draw_unit_embeddings(model, torch.Generator().manual_seed(0), "orthonormal")
    close(model["embed"].W_E @ model["embed"].W_E.T, torch.eye(SIZE))
    close(model["unembed"].W_U.T @ model["unembed"].W_U, torch.eye(SIZE))


def along_a_curve():
    """Of a path, whose points are linked to the next ones, the slowest way to vary is a cosine."""
    points = torch.stack([torch.arange(float(SIZE)), torch.zeros(SIZE)], dim=1)
    found = curve_coordinate(points, linked=1)
    expected = torch.cos(torch.pi * (torch.arange(SIZE, dtype=torch.float64) + 0.5) / SIZE) * math.sqrt(2 / SIZE)
    close(found * found[0].sign(), expected)


def by_numpy():
    """A power law without errors, and the best approximation of a diagonal matrix."""
    x = np.array([1.0, 2.0, 5.0, 9.0])
    assert abs(fit_power_law(x, 3 * x**1.5).slope - 1.5) < 1e-9
    matrix = np.diag(np.arange(1.0, SIZE + 1))
    close(_cut(matrix[None], 50)[0], np.where(matrix > SIZE - 50, matrix, 0))


CALLS = (probed, components, circuits, truncated, orthonormal, along_a_curve, by_numpy)


@pytest.mark.slow
def test_decompositions_after_the_number_of_threads_has_grown():
    """In one fresh process, which compares each with a closed form."""
    command = [sys.executable, "-m", "tests.test_changed_threads"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == [call.__name__ for call in CALLS]


if __name__ == "__main__":
    for call in CALLS:
        change_threads()
        call()
        print(call.__name__)
