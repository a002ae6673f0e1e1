import sys

import numpy as np
import pytest
import torch

from anchorlab.errors import SpecError
from anchorlab.lens import principal_components, tsne

GENERATOR = torch.Generator().manual_seed(0)
SCALES = torch.tensor([5.0, 3.0, 2.0, 1.0, 0.5, 0.1], dtype=torch.float64)
CLOUDS = torch.randn(3, 4, 10, 6, generator=GENERATOR, dtype=torch.float64) * SCALES + 7
"""Of three members: four sequences of ten positions, of width 6."""


class TestPrincipalComponents:
    def test_against_scikit_learn(self):
        PCA = pytest.importorskip("sklearn.decomposition").PCA
        found = principal_components(CLOUDS, components=3)
        assert found.coordinates.shape == (3, 4, 10, 3)
        for member, cloud in enumerate(CLOUDS):
            other = PCA(3, svd_solver="full").fit(cloud.reshape(-1, 6).numpy())
            np.testing.assert_allclose(found.explained[member], other.explained_variance_ratio_, rtol=1e-10)
            np.testing.assert_allclose(found.mean[member], other.mean_, rtol=1e-10)
            signs = np.sign((found.directions[member].numpy() * other.components_).sum(axis=1, keepdims=True))
            np.testing.assert_allclose(found.directions[member], signs * other.components_, atol=1e-10)
            placed = signs.T * other.transform(cloud.reshape(-1, 6).numpy())
            np.testing.assert_allclose(found.coordinates[member].reshape(-1, 3), placed, atol=1e-9)

    def test_all_components_give_the_vectors_back_with_the_farthest_row_on_the_positive_side(self):
        found = principal_components(CLOUDS, components=6)
        again = found.coordinates.flatten(1, 2) @ found.directions + found.mean.unsqueeze(1)
        assert torch.allclose(again.view_as(CLOUDS), CLOUDS, atol=1e-10)
        assert torch.allclose(found.explained.sum(dim=1), torch.ones(3, dtype=torch.float64))
        for vectors in (CLOUDS, 14 - CLOUDS):  # the clouds, and their mirror images
            places = principal_components(vectors, components=6).coordinates.reshape(3, 40, 6)
            assert torch.equal(places.max(dim=1).values, places.abs().max(dim=1).values)

    def test_a_rectangle_by_hand(self):
        # corners at 3 and 1 from the centre: 9 parts of the variance along one side, 1 along the other
        corners = torch.tensor([[3.0, 1.0, 5.0], [3.0, -1.0, 5.0], [-3.0, 1.0, 5.0], [-3.0, -1.0, 5.0]]).unsqueeze(0)
        found = principal_components(corners)
        assert found.explained[0].tolist() == pytest.approx([0.9, 0.1])
        assert found.mean[0].tolist() == pytest.approx([0, 0, 5])
        assert torch.allclose(found.directions[0].abs(), torch.eye(3)[:2], atol=1e-6)

    def test_members_are_kept_apart_and_vectors_that_do_not_vary_have_no_components(self):
        alone = principal_components(CLOUDS[1:2])
        assert torch.allclose(principal_components(CLOUDS).coordinates[1], alone.coordinates[0], atol=1e-10)
        found = principal_components(torch.ones(2, 5, 3))
        assert found.explained.abs().max() == 0 and found.coordinates.abs().max() == 0


def clusters():
    """Three groups of twelve points in ten dimensions, far apart."""
    draw = np.random.default_rng(0)
    centres = np.repeat(draw.normal(size=(3, 10)) * 20, 12, axis=0)
    return torch.tensor(centres + draw.normal(size=(36, 10)))


def nearest_group(coordinates):
    """The group of the nearest other point on the plane, for every point of the clusters."""
    plane = coordinates.reshape(36, 2)
    apart = torch.cdist(plane, plane).fill_diagonal_(torch.inf)
    return apart.argmin(dim=1) // 12


def neighbourhoods(points, perplexity):
    """P of t-SNE, from its definition: Gaussians whose entropies are log(perplexity), made symmetric."""
    squares = ((points[:, None] - points[None]) ** 2).sum(axis=-1)
    rows = []
    for i, row in enumerate(squares):
        low, high = 1e-10, 1e10
        for _ in range(200):
            precision = (low * high) ** 0.5
            weights = np.exp(-(row - np.delete(row, i).min()) * precision)
            weights[i] = 0
            chances = weights / weights.sum()
            entropy = -(chances[chances > 0] * np.log(chances[chances > 0])).sum()
            low, high = (precision, high) if entropy > np.log(perplexity) else (low, precision)
        rows.append(chances)
    one_way = np.array(rows)
    return (one_way + one_way.T) / (2 * len(points))


def test_without_scikit_learn_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(SpecError, match=r"^scikit-learn: is not installed; run pip install 'anchorlab\[tsne\]'$"):
        tsne(clusters().unsqueeze(0))


@pytest.fixture(scope="module")
def library():
    return pytest.importorskip("sklearn")


@pytest.mark.usefixtures("library")
class TestTsne:
    def test_divergence_is_that_of_the_definition(self):
        points = clusters()
        found = tsne(points.unsqueeze(0), perplexity=8.0)
        p = neighbourhoods(points.numpy(), perplexity=8.0)
        plane = found.coordinates[0].double().numpy()
        q = 1 / (1 + ((plane[:, None] - plane[None]) ** 2).sum(axis=-1))
        np.fill_diagonal(q, 0)
        q /= q.sum()
        off = ~np.eye(len(p), dtype=bool) & (p > 0)
        assert float(found.divergence) == pytest.approx((p[off] * np.log(p[off] / q[off])).sum(), rel=0.01)

    @pytest.mark.parametrize("neighbours", [1, 5])
    def test_trustworthiness_is_that_of_the_definition(self, neighbours):
        points = torch.tensor(np.random.default_rng(1).normal(size=(30, 10)))  # no plane can hold these well
        found = tsne(points.unsqueeze(0), neighbours=neighbours)

        def order(rows):
            """For each row the others, the nearest first."""
            apart = np.linalg.norm(rows[:, None] - rows[None], axis=-1)
            np.fill_diagonal(apart, -1)
            return apart.argsort(axis=1)[:, 1:]

        penalty, k, n = 0, neighbours, len(points)
        true = order(points.numpy())
        for i, shown in enumerate(order(found.coordinates[0].double().numpy())[:, :k]):
            standing = {other: place + 1 for place, other in enumerate(true[i].tolist())}
            penalty += sum(max(0, standing[other] - k) for other in shown.tolist())
        expected = 1 - 2 * penalty / (n * k * (2 * n - 3 * k - 1))
        assert expected < 0.95
        assert float(found.trustworthiness) == pytest.approx(expected)

    def test_groups_stay_together(self):
        found = tsne(clusters().view(1, 3, 12, 10), perplexity=5.0)
        assert found.coordinates.shape == (1, 3, 12, 2)
        assert torch.equal(nearest_group(found.coordinates), torch.arange(36) // 12)
        assert float(found.trustworthiness) > 0.9

    @pytest.mark.parametrize("seed", [None, 3])
    def test_members_and_repetitions(self, seed):
        points = clusters()
        both = torch.stack([points, points.flip(0) ** 2])
        found, again = tsne(both, seed=seed), tsne(both.flip(0), seed=seed)
        for name in ("coordinates", "divergence", "trustworthiness"):
            assert torch.equal(getattr(found, name), getattr(again, name).flip(0)), name
        assert found.divergence[0] != found.divergence[1]

    def test_starts(self):
        """Other starts give other planes, on which the same groups lie together."""
        points = clusters().unsqueeze(0)
        planes = [tsne(points, seed=seed, perplexity=5.0) for seed in (None, 0, 1)]
        assert not torch.allclose(planes[1].coordinates, planes[2].coordinates, atol=1)
        assert not torch.allclose(planes[0].coordinates, planes[1].coordinates, atol=1)
        for plane in planes:
            assert torch.equal(nearest_group(plane.coordinates), torch.arange(36) // 12)

    def test_the_approximation_is_near_and_not_the_same_and_more_iterations_come_nearer(self):
        points = clusters().unsqueeze(0)
        whole, near = (tsne(points, perplexity=5.0, exact=exact) for exact in (True, False))
        assert float(near.divergence) == pytest.approx(float(whole.divergence), rel=0.3)
        assert not torch.equal(near.coordinates, whole.coordinates)
        assert torch.equal(nearest_group(near.coordinates), torch.arange(36) // 12)
        few, more = (tsne(points, perplexity=5.0, iterations=count) for count in (251, 500))
        assert float(more.divergence) < float(few.divergence) < torch.inf


REFUSED = [
    *((lambda wide=wide: principal_components(CLOUDS, wide),
       rf"components: cannot take {wide} of 40 vectors of width 6; give one of 1\.\.6") for wide in (0, 7)),
    (lambda: tsne(clusters()[None], perplexity=36.0), "perplexity: 36 does not fit 36 rows; give one between 0 and 36"),
    (lambda: tsne(clusters()[None], perplexity=0.0), "perplexity: 0 does not fit 36 rows"),
    (lambda: tsne(clusters()[None], neighbours=18), r"neighbours: 18 do not fit 36 rows; give one of 1\.\.17"),
    (lambda: tsne(clusters()[None], neighbours=0), "neighbours: 0 do not fit 36 rows"),
    (lambda: tsne(clusters()[None], iterations=250), "iterations: 250 are too few; give at least 251"),
    *((lambda shape=shape: tsne(torch.ones(shape), neighbours=1),
       r"vectors: are . rows of width .; give at least 4 of width 2") for shape in ((1, 3, 5), (1, 9, 1))),
    (lambda: tsne(torch.stack([clusters(), torch.ones_like(clusters())])),
     "vectors: of one member are all equal; give vectors that vary"),
]  # fmt: skip


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(("ask", "message"), REFUSED)
def test_what_cannot_be_placed_is_named(ask, message):
    with pytest.raises(SpecError, match=message):
        ask()
