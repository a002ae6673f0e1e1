"""ACDC on models whose circuits are known by construction, and its steps written out."""

import pytest
import torch

from anchorlab.lens import Edge, prune_edges
from anchorlab.tasks import TokenRetrieval
from anchorlab.theory import retrieval_circuit
from tests.lens import hand_built
from tests.lens.hand_built import ANCHOR, INPUTS, KEYS, VOCABULARY, identity_solver, other_anchor, stacked
from tests.lens.scoring.reference import BASE, Written, drawn, pairs


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


def test_edges_into_what_nothing_reads_cost_no_pass_and_progress_counts_edges():
    """In the solver of one member nothing reads four of six heads, nor the queries of the others."""
    told = []
    given = identity_solver(), *other_anchor()[:4]
    found = prune_edges(*given, threshold=0.1, progress=lambda *each: told.append(each))
    logits, layer_1, layer_0 = 7, 3 * 4, 3 * 1  # of head 1.0 and of head 0.0 alone
    assert found.passes == (2 + logits + layer_1 + layer_0, 0)
    assert told == [(done, 52) for done in range(1, 53)]
    everything = prune_edges(*given, threshold=100.0)
    assert everything.passes == (2 + logits, 0) and everything.circuit(100.0) == ()
