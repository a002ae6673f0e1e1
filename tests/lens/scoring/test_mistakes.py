"""Mistakes planted in the methods: each must break what the other tests compare them with."""

import pytest
import torch

from anchorlab.lens import prune_edges, score_edges, score_units
from anchorlab.lens.scoring import comparison, edges, parts, passes, pruning, units
from anchorlab.lens.scoring.graph import edges_of
from anchorlab.models.attention import Attention
from anchorlab.models.block import LayerNorm
from tests.lens.scoring import linear
from tests.lens.scoring.reference import BASE, drawn, edge_slopes, pairs
from tests.lens.scoring.test_pruning import written_out

GIVEN = linear.CLEAN, linear.CORRUPTED, linear.RIGHT, linear.WRONG


def edges_agree() -> bool:
    """Whether the scores of edges are those of the decoder written out, in two steps, and exact on the linear model."""
    ensemble = drawn(BASE)
    found = score_edges(ensemble, *pairs(), steps=2)
    named = [(edge.sender, edge.receiver) for edge in found.edges]
    expected = torch.stack([edge_slopes(ensemble, member, named, steps=2) for member in range(2)])
    plain = score_edges(linear.linear_members(), *GIVEN)
    exact = torch.tensor([[one.get(str(edge), 0.0) for edge in plain.edges] for one in linear.effects()])
    return torch.allclose(found.edge_values, expected, atol=1e-6) and torch.allclose(
        plain.edge_values.float(), exact, atol=1e-4
    )


def units_agree() -> bool:
    """Whether the scores of units are the exact effects on the linear model."""
    found = score_units(linear.linear_members(), *GIVEN)
    exact = [
        [sum(value for edge, value in one.items() if edge.startswith(f"{unit} ")) for unit in found.units]
        for one in linear.effects()
    ]
    return torch.allclose(found.values.float(), torch.tensor(exact), atol=1e-4)


def pruning_agrees() -> bool:
    """Whether each member's edges have the scores of the algorithm written out."""
    ensemble = drawn(BASE)
    found = prune_edges(ensemble, *pairs(), threshold=0.005)
    order = [(edge.sender, edge.receiver) for edge in edges_of(ensemble.template)]
    for member in range(2):
        expected = written_out(ensemble, member, order, 0.005)
        same = zip(found.edges, found.edge_values[member].tolist(), strict=True)
        if any(abs(expected[edge.sender, edge.receiver] - value) > 1e-7 for edge, value in same):
            return False
    return True


def members_turned(one):
    def mapped(ensemble, function, stacked=(), shared=()):
        found = one(ensemble, function, stacked, shared)
        return found.roll(1, dims=0) if function is passes.unit_outputs else found

    return mapped


def swapped(one):
    return lambda *given: one(*given[:6], "corrupted", *given[7:])


def negated(one):
    return lambda *given: -one(*given)


def summed(one):
    return lambda self, *given: one(self, *given) * self.count


def one_step_further(one):
    """Averages over k = 0 .. steps - 1: with the corrupted run, and without the clean one."""
    return lambda steps, base, source: (source + step / steps * (base - source) for step in reversed(range(steps)))


def exchanged_names(one):
    exchanged = str.maketrans("qk", "kq")
    return lambda template: tuple(name if name == "logits" else name.translate(exchanged) for name in one(template))


def keys_of_the_other_head(one):
    """Reads the streams of two queries, two keys and two values in another order."""
    return lambda attention, x, *given: one(attention, x[[0, 1, 3, 2, 4, 5]] if len(x) == 6 else x, *given)


def without_norm(one):
    """Leaves streams that each have one receiver as they are."""
    return lambda norm, x, tap: x if x.ndim == 4 else one(norm, x, tap)


def from_the_embedding(one):
    return lambda template: one(template)[::-1]


MISTAKES = {
    "clean and corrupted exchanged": (edges_agree, comparison.Pairs, "of", swapped),
    "the sign of the metric": (edges_agree, comparison.Comparison, "measure", negated),
    "a sum over sequences for their mean": (edges_agree, comparison.Comparison, "measure", summed),
    "the corrupted values of another member": (edges_agree, edges, "mapped", members_turned),
    "steps at the wrong end of the path": (edges_agree, edges, "entering_streams", one_step_further),
    "the keys of the other head": (edges_agree, Attention, "by_head", keys_of_the_other_head),
    "norms that edges do not pass": (edges_agree, LayerNorm, "forward", without_norm),
    "queries under the name of keys": (edges_agree, edges, "receivers_of", exchanged_names),
    "units: clean and corrupted exchanged": (units_agree, comparison.Pairs, "of", swapped),
    "units: the sign of the metric": (units_agree, comparison.Comparison, "measure", negated),
    "units: the heads of another layer": (units_agree, units, "_by_unit", lambda one: lambda p, s: one(p, s).flip(0)),
    "pruning from the embedding on": (pruning_agrees, pruning, "edges_of", from_the_embedding),
    "pruning: clean and corrupted exchanged": (pruning_agrees, comparison.Pairs, "of", swapped),
    "pruning with the corrupted values of another member": (pruning_agrees, parts, "mapped", members_turned),
}
"""What must notice, what is changed, and how."""


@pytest.mark.parametrize("agrees", [edges_agree, units_agree, pruning_agrees])
def test_without_a_mistake_all_agree(agrees):
    assert agrees()


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_noticed(mistake, monkeypatch):
    agrees, owner, name, change = MISTAKES[mistake]
    one = getattr(owner, name)
    changed = change(one)
    monkeypatch.setattr(owner, name, staticmethod(changed) if name == "of" else changed)
    assert not agrees()
