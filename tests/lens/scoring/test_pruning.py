"""ACDC on models whose circuits are known by construction, and mistakes planted in all methods."""

import pytest
import torch

from anchorlab.lens import Edge, prune_edges, score_edges, score_units
from anchorlab.lens.scoring import comparison, edges, parts, passes, pruning, units
from anchorlab.lens.scoring.graph import edges_of
from anchorlab.tasks import TokenRetrieval
from anchorlab.theory import retrieval_circuit
from tests.lens import hand_built
from tests.lens.hand_built import ANCHOR, INPUTS, KEYS, VOCABULARY, identity_solver, other_anchor, stacked
from tests.lens.scoring import linear
from tests.lens.scoring.reference import BASE, Written, drawn, edge_slopes, pairs


def edges_in(text):
    return {Edge(*edge.split("→")) for edge in text.split()}


def test_finds_the_edges_that_a_solver_was_built_from():
    """A marking head and a broadcasting head: 0 and 0 in the first member, 2 and 2 in the second, turned one.

    If the anchor moves, the broadcasting head finds another place; the tokens after both places are the same in both
    runs, so that the values need not be clean. If all tokens change, these are needed too.
    """
    both = stacked(identity_solver(), hand_built.turned_solver())
    anchor = prune_edges(both, *other_anchor()[:4], threshold=0.1)
    for member, head in enumerate((0, 2)):
        needed = edges_in(f"embed→0.{head}.v 0.{head}→1.{head}.k 1.{head}→logits")
        assert {*anchor.circuit(0.1, member)} == needed
    others = torch.tensor([token for token in range(VOCABULARY) if token != ANCHOR])
    renamed = torch.arange(VOCABULARY).scatter(0, others, others.roll(4))
    inputs = renamed[INPUTS.roll(1, dims=0)]  # another place of the anchor, and other tokens around it
    everything = prune_edges(both, INPUTS, inputs, KEYS, renamed[KEYS], threshold=0.1)
    for member, head in enumerate((0, 2)):
        needed = edges_in(f"embed→0.{head}.v embed→1.{head}.v 0.{head}→1.{head}.k 1.{head}→logits")
        assert {*everything.circuit(0.1, member)} == needed
        kept = everything.values[member] >= 0.1
        assert [unit for unit, keep in zip(everything.units, kept, strict=True) if keep] == [
            "embed",
            f"0.{head}",
            f"1.{head}",
        ]


@pytest.mark.parametrize("metric", [None, lambda output, both: output.gather(-1, both[..., :1]).squeeze(-1)])
def test_finds_the_edges_of_a_chain_of_three_steps(metric):
    """Layer 0 brings the token before. Layer 1 looks up the pair that begins with the token here, and takes its second.

    Layer 2 looks up the pair that begins with what layer 1 found, and takes what layer 1 found there.
    """
    task = TokenRetrieval(chains=2, steps=3, symbols=8, implicit_curriculum=False)
    clean, corrupted = (task.sample("test", 30, seed) for seed in (0, 1))
    found = prune_edges(retrieval_circuit(task), clean, corrupted, threshold=0.01, metric=metric)
    layers = "embed→0.0.v embed→1.0.q 0.0→1.0.k embed→1.0.v 1.0→2.0.q 0.0→2.0.k 1.0→2.0.v 2.0→logits"
    assert {*found.circuit(0.01)} == edges_in(layers)
    assert len(found.edges) == 22


def written_out(ensemble, member, order, threshold):
    """The algorithm of the source, on a decoder written out."""
    clean, corrupted, *_ = pairs()
    model = Written(ensemble, member)
    model(model.embedded(corrupted))
    others = model.outputs
    stream = model.embedded(clean)
    whole = model(stream)[:, -1].log_softmax(dim=-1)
    removed, current, scores = {}, 0.0, {}
    for edge in reversed(order):
        tried = {**removed, edge: torch.ones(())}
        logs = model(stream, others, tried)[:, -1].log_softmax(dim=-1)
        divergence = float(torch.nn.functional.kl_div(logs, whole, log_target=True, reduction="batchmean"))
        scores[edge] = max(0.0, divergence - current)
        if divergence - current < threshold:
            removed, current = tried, divergence
    return scores


def test_equals_the_algorithm_written_out():
    ensemble = drawn(BASE)
    found = prune_edges(ensemble, *pairs(), threshold=0.005)
    kept = found.edge_values >= 0.005
    assert (kept.sum(dim=1) > 5).all() and ((~kept).sum(dim=1) > 5).all()
    assert not torch.equal(*kept)
    order = [(edge.sender, edge.receiver) for edge in found.edges]
    for member in range(2):
        expected = written_out(ensemble, member, order, 0.005)
        assert found.edge_values[member].tolist() == pytest.approx([expected[edge] for edge in order], abs=1e-9)


def test_every_member_keeps_the_edges_that_it_keeps_alone():
    ensemble = drawn(BASE)
    together = prune_edges(ensemble, *pairs(), threshold=0.005, batch_size=2)
    for member in range(2):
        alone = prune_edges(ensemble.select([member]), *pairs(), threshold=0.005)
        assert alone.circuit(0.005) == together.circuit(0.005, member)
        torch.testing.assert_close(alone.edge_values, together.edge_values[[member]], rtol=0, atol=1e-9)


def test_edges_into_what_nothing_reads_cost_no_pass():
    """In the solver of one member nothing reads four of six heads, nor the queries of the others."""
    found = prune_edges(identity_solver(), *other_anchor()[:4], threshold=0.1)
    logits, layer_1, layer_0 = 7, 3 * 4, 3 * 1  # of head 1.0 and of head 0.0 alone
    assert found.passes == (2 + logits + layer_1 + layer_0, 0)
    everything = prune_edges(identity_solver(), *other_anchor()[:4], threshold=100.0)
    assert everything.passes == (2 + logits, 0)
    assert everything.circuit(100.0) == ()


def test_progress_counts_edges():
    told = []
    prune_edges(identity_solver(), *other_anchor()[:4], threshold=0.1, progress=lambda *each: told.append(each))
    assert told == [(done, 52) for done in range(1, 53)]


# Mistakes planted in the methods: each must break what the other tests compare them with.
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
    return lambda attention, role, x: one(attention, role, x[[1, 0]] if role == "K" and len(x) == 2 else x)


def without_norm(one):
    return lambda norm, x: x


def from_the_embedding(one):
    return lambda template: one(template)[::-1]


MISTAKES = {
    "clean and corrupted exchanged": (edges_agree, comparison.Pairs, "of", swapped),
    "the sign of the metric": (edges_agree, comparison.Comparison, "measure", negated),
    "a sum over sequences for their mean": (edges_agree, comparison.Comparison, "measure", summed),
    "the corrupted values of another member": (edges_agree, edges, "mapped", members_turned),
    "steps at the wrong end of the path": (edges_agree, edges, "entering_streams", one_step_further),
    "the keys of the other head": (edges_agree, passes, "_projected", keys_of_the_other_head),
    "norms that edges do not pass": (edges_agree, passes, "_norm", without_norm),
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
