"""How much of a metric the best edges keep, in models whose every path is known."""

import pytest
import torch

from anchorlab.errors import SpecError
from anchorlab.lens import Passes, Scores, faithfulness, score_edges
from anchorlab.lens.scoring.faithfulness import SHARES
from anchorlab.lens.scoring.graph import graph_of
from tests.lens.scoring.linear import CLEAN, CORRUPTED, RIGHT, WRONG, effects, linear_members

MEMBERS = linear_members()
EDGES = graph_of(MEMBERS.template).edges
PATHS = {
    "embed": ["embed → logits"],
    "first": ["embed → 0.0.v", "0.0 → logits"],
    "second": ["embed → 1.0.v", "1.0 → logits"],
    "both": ["embed → 0.0.v", "0.0 → 1.0.v", "1.0 → logits"],
}
ORDER = ["embed → logits", "embed → 1.0.v", "1.0 → logits", "0.0 → 1.0.v", "embed → 0.0.v", "0.0 → logits"]
"""The order in which edges are kept, from the first."""


def ordered(order):
    """Scores that rank the named edges first, in both members, and then all others."""
    names = [str(edge) for edge in EDGES]
    values = torch.full((2, len(EDGES)), 0.5)
    for place, name in enumerate(order):
        values[:, names.index(name)] = -10.0 + place if place % 2 else 10.0 - place  # the sign does not count
    return Scores.of_edges("by hand", graph_of(MEMBERS.template).units, EDGES, values, Passes(0, 0))


def curve(found=None, **given):
    both = {"answers": RIGHT, "corrupted_answers": WRONG}
    return faithfulness(
        MEMBERS, found or ordered(ORDER), CLEAN, CORRUPTED, **both, batch_size=1, progress=False, **given
    )


def carried(of):
    """What each path carries, from the effects of single edges."""
    return {
        "embed": of["embed → logits"], "first": of["0.0 → logits"], "second": of["embed → 1.0.v"],
        "both": of["0.0 → 1.0.v"],
    }  # fmt: skip


def test_a_set_of_edges_keeps_what_its_whole_paths_carry():
    found = curve(sizes=range(7))
    assert found.sizes == (0, 1, 2, 3, 4, 5, 6, len(EDGES)) and found.edges == len(EDGES)
    for member, of in enumerate(effects()):
        each = carried(of)
        for at, size in enumerate(found.sizes[:-1]):
            kept = [name for name, path in PATHS.items() if set(path) <= set(ORDER[:size])]
            expected = sum(each[name] for name in kept) / sum(each.values())
            assert float(found.values[member, at]) == pytest.approx(expected, abs=1e-5)
        assert float(found.values[member, -1]) == 1


def test_each_member_keeps_edges_of_its_own():
    scores = ordered(ORDER)
    other = ordered(ORDER[::-1])
    mixed = Scores.of_edges(
        "mixed", scores.units, EDGES, torch.stack([scores.edge_values[0], other.edge_values[1]]), Passes(0, 0)
    )
    found, first, second = (curve(one, sizes=[2, 3]) for one in (mixed, scores, other))
    torch.testing.assert_close(found.metric[0], first.metric[0])
    torch.testing.assert_close(found.metric[1], second.metric[1])
    assert not torch.allclose(first.metric[1], second.metric[1])


def test_the_area_and_the_least_size():
    found = curve(sizes=[3, 6])
    values = found.values[0]
    widths = torch.tensor([3, 3, len(EDGES) - 6]) / len(EDGES)
    area = float((widths * (values[:-1] + values[1:]) / 2).sum())
    assert float(found.area[0]) == pytest.approx(area)
    assert found.least(0.99) == 6
    assert found.least(1.01) is None
    below = min(each for each in values[1:].tolist())
    assert found.least(below - 1e-6) == 3


def test_random_edges_are_drawn_from_a_seed_and_worse():
    found, again, other = (curve(sizes=[6], controls=20, seed=seed) for seed in (0, 0, 1))
    assert found.random.shape == (2, 3, 20, 2)
    torch.testing.assert_close(found.random, again.random)
    assert not torch.allclose(found.random, other.random)
    # of twelve edges six are kept: a path of one edge is whole in a half of all sets, and longer ones in these shares
    chances = {"embed": 1 / 2, "first": 210 / 924, "second": 210 / 924, "both": 84 / 924}
    many = curve(sizes=[6], controls=300)
    for member, of in enumerate(effects()):
        each = carried(of)
        drawn, whole = many.random[member, 1].mean(dim=-1), sum(each.values())
        shares = (many.metric[member, 0].mean() - drawn) / whole  # corrupting an edge takes away what it carries
        expected = sum(each[name] * chances[name] for name in each) / whole
        assert abs(float(shares.mean()) - expected) < 3 * float(shares.std()) / 300**0.5
        torch.testing.assert_close(shares.mean(), many.random_values[member, 1])
    assert found.table.height == 6


def test_the_shares_of_the_source():
    found = curve()
    assert len(EDGES) == 12
    assert found.sizes == tuple(sorted({round(share * 12) for share in SHARES}))
    own = curve(score_edges(MEMBERS, CLEAN, CORRUPTED, RIGHT, WRONG))
    assert bool((own.values[:, -1] == 1).all())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sizes": [3, 99]}, r"^sizes: hold 99; choose from 0 to 12$"),
        ({"controls": -1}, r"^controls: -1 is no number of sets; give 0 or more$"),
        ({"found": Scores("few", ("embed",), torch.ones(2, 1), Passes(0, 0))},
         r"^found: has not the edges of this model; give scores of `score_edges` of the same model$"),
    ],
)  # fmt: skip
def test_unfitting_arguments(given, message):
    with pytest.raises(SpecError, match=message):
        curve(**given)
