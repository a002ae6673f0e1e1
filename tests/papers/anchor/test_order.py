"""The order of embeddings, on points placed by hand."""

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from torch import nn

from anchorlab.lens import tsne
from anchorlab.papers.anchor import order as of
from anchorlab.tasks import task
from anchorlab.training.ensemble import Ensemble
from tests.papers.hand_made_runs import run_ending, seen_by_hand, values_of, verdicts_of

ITEMS = 81


def curve(noise: float, seed: int = 0) -> torch.Tensor:
    """A spiral through 64 dimensions, by hand: neighbours on it are about 0.5 apart, its turns 3 or more."""
    generator = np.random.default_rng(seed)
    angle = np.linspace(0, 4 * np.pi, ITEMS)
    spiral = np.stack([np.cos(angle) * 3, np.sin(angle) * 3, np.linspace(0, 8, ITEMS)], axis=1)
    axes = np.linalg.qr(generator.normal(size=(64, 3)))[0]
    return torch.tensor(spiral @ axes.T + noise * generator.normal(size=(ITEMS, 64)))


def shuffled(points: torch.Tensor, seed: int) -> torch.Tensor:
    return points[torch.tensor(np.random.default_rng(seed).permutation(len(points)))]


def test_a_noisy_curve_is_ordered_by_rank_correlation_and_shuffled_points_are_not():
    points = curve(noise=0.05)
    found = of.Order.of(torch.stack([points, points.flip(0), *(shuffled(points, seed) for seed in range(6))]))
    assert found.order[0] > 0.99 and found.order[1] > 0.99
    assert found.neighbours[0] > 0.95 and found.neighbours[1] > 0.95
    # Of shuffled items the correlation is about N(0, 1/80) and taken without sign: 0.09 in the mean.
    assert found.order[2:].mean() < 0.2
    assert (found.neighbours[2:] - of.chance_of_near(ITEMS)).abs().mean() < 0.04
    points = torch.tensor(np.random.default_rng(1).normal(size=(6, ITEMS, 64)))
    found = of.Order.of(points)
    assert found.order.mean() < 0.3
    assert found.neighbours.mean() < 0.15
    points = torch.stack([curve(noise=0.05), curve(noise=0.6, seed=1), shuffled(curve(noise=0.1), 2)])
    expected = [abs(spearmanr(of.curve_coordinate(one).numpy().round(9), np.arange(ITEMS)).statistic) for one in points]
    np.testing.assert_allclose(of.Order.of(points).order, expected, atol=1e-9)


def test_places_ranks_and_near_neighbours_along_the_curve():
    forward, backward = of.places(torch.stack([curve(0.0), curve(0.0).flip(0)]))
    np.testing.assert_allclose(forward, np.linspace(0, 1, ITEMS), atol=0.05)  # the ends are linked alike
    np.testing.assert_allclose(backward, np.linspace(0, 1, ITEMS), atol=0.05)
    along = torch.cat([torch.arange(20.0), 100 + torch.arange(20.0), 200 + torch.arange(20.0)])
    first, second, third = of.curve_coordinate(along.unsqueeze(1)).split(20)
    if first[0] > third[0]:  # the coordinate has no sign of its own
        first, third = third, first
    assert first.max() < second.min()
    assert second.max() < third.min()
    found = of.ranks(torch.tensor([[0.3, 0.1, 0.3 + 1e-13, 0.2], [4.0, 3.0, 2.0, 1.0]]))
    assert found.tolist() == [[2.5, 0.0, 2.5, 1.0], [3.0, 2.0, 1.0, 0.0]]
    line = torch.tensor([[0.0], [1.0], [3.0], [6.0], [2.1]]).unsqueeze(0)
    # Nearest: 0 -> 1; 1 -> 0; 2 -> 4 (0.9 away); 3 -> 2; 4 -> 2. One place away: 0, 1 and 3.
    assert of.near_neighbours(line, count=1, near=1).tolist() == pytest.approx([3 / 5])
    assert of.near_neighbours(line, count=1, near=2).tolist() == [1.0]
    assert torch.isinf(of.distances(line)[0].diagonal()).all()
    assert float(of.distances(line)[0, 2, 4]) == pytest.approx(0.9)
    assert of.chance_of_near(5, near=1) == pytest.approx(8 / 20)
    assert of.chance_of_near(4, near=3) == 1.0
    assert task("anchor/classification").vocabulary.items == (20, 100)


def test_the_picture_keeps_what_is_near_at_the_start_and_the_end():
    pytest.importorskip("sklearn")
    points = curve(noise=0.05)[::4].unsqueeze(0)
    drawn = tsne(points).coordinates
    assert drawn.shape == (1, 21, 2)
    assert float(of.near_neighbours(drawn)) > 0.9
    assert torch.equal(drawn, tsne(points).coordinates)
    seen = of.STUDY.see([run_that_orders_the_items()], of.QUICK)
    assert seen.accuracy.tolist() == pytest.approx([0.96, 0.9]) and seen.learned
    assert seen.after.order.min() > 0.99 and seen.before.order.max() < 0.5
    assert seen.after.neighbours.min() > 0.95 and seen.before.neighbours.max() < 0.2
    assert of.near_neighbours(seen.picture).min() > 0.9 and seen.picture.shape == (2, ITEMS, 2)


def order(correlations, neighbours) -> of.Order:
    unused = torch.zeros(2, ITEMS, 1)
    return of.Order(unused, unused[..., 0], torch.tensor(correlations), torch.tensor(neighbours))


def seen_as(accuracy, before, after, picture) -> of.Seen:
    return seen_by_hand(of.Seen, accuracy=torch.tensor(accuracy), before=before, after=after, picture=picture)


def on_a_line(*orders: range) -> torch.Tensor:
    return torch.stack([torch.tensor([[float(place), 0.0] for place in order]) for order in orders])


def test_values_of_an_order_that_is_learned_with_its_task():
    straight = on_a_line(range(ITEMS), range(0, -ITEMS, -1))  # every item's two nearest are within 3 in value
    seen = seen_as([0.9, 1.0], order([0.1, 0.9], [0.1, 0.14]), order([0.96, 1.0], [0.8, 0.9]), straight)
    assert values_of(of.STUDY, seen) == {
        "learned": pytest.approx(0.95), "along-the-curve": pytest.approx(0.98), "neighbours": pytest.approx(0.85),
        "picture": 1.0, "not-given": pytest.approx(0.12),
    }  # fmt: skip
    after = order([1.0, 1.0], [1.0, 1.0])
    values = values_of(of.STUDY, seen_as([0.85, 0.93], after, after, on_a_line(*[range(ITEMS)] * 2)))
    assert {name for name, value in values.items() if value is not None} == {"learned", "not-given"}


def run_that_orders_the_items():
    """Ordered items after training and shuffled ones before it; the other tokens are somewhere else."""
    (experiment,) = of.experiments(replace(of.QUICK, seeds=2)).values()
    ordered = curve(noise=0.05).float()
    tables = {0: shuffled(ordered, 3), 3000: torch.zeros(ITEMS, 64), 6000: ordered}
    ensembles = {}
    for step, items in tables.items():
        embedding = torch.full((2, 201, 64), 50.0)
        embedding[:, 20:101] = items
        ensembles[step] = Ensemble(nn.Identity(), {"embed.W_E": embedding}, ())
    return run_ending(experiment, (0.96, 0.9), (0.1, 0.2), ensembles)


def test_without_scikit_learn_the_picture_alone_is_left_out(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    run, why = run_that_orders_the_items(), "run pip install 'anchorlab[tsne]'"
    analysis = of.STUDY.analysis([run], replace(of.QUICK, seeds=2))
    verdicts = verdicts_of(of.STUDY, analysis.seen)
    assert verdicts.pop("picture") == "not measured"
    assert verdicts.keys() == {"learned", "along-the-curve", "neighbours", "not-given"}
    assert set(verdicts.values()) == {"agrees at small scale"}
    (picture,) = (
        one for one in of.STUDY.judge(analysis.seen, "quick", analysis.seen) if one.claim.id.endswith("picture")
    )
    assert why in picture.detail and why in picture.untrained.note
    place, _ = analysis.figures
    assert place.title.startswith("Place along the curve") and why in place.caption
    assert "neighbours in the picture" not in analysis.tables[0].columns
