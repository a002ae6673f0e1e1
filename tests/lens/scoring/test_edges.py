"""Scores of edges: the graph, passes with removed edges, attribution and path patching, beside decoders written out."""

import pytest
import torch

from anchorlab.lens import patch_edges, patch_paths, score_edges, score_units
from anchorlab.lens.scoring.graph import graph_of
from anchorlab.lens.scoring.passes import embedded, mapped, plain_pass, split_pass, unit_outputs
from anchorlab.models import OneLayerSpec, RecallSpec
from anchorlab.training.ensemble import initialise
from tests.lens.scoring import linear
from tests.lens.scoring.reference import BASE, FORMS, SHAPE, Written, difference, drawn, edge_slopes, pairs, replaced


def of(spec):
    template = spec.build(SHAPE)
    return graph_of(template).units, graph_of(template).receivers, [str(edge) for edge in graph_of(template).edges]


def test_two_heads_and_a_feed_forward_layer():
    units, receivers, edges = of(BASE.replace(layers=1))
    assert units == ("embed", "0.0", "0.1", "0.mlp")
    assert receivers == ("0.0.q", "0.1.q", "0.0.k", "0.1.k", "0.0.v", "0.1.v", "0.mlp", "logits")
    assert edges == [
        *(f"embed → {receiver}" for receiver in receivers[:6]),
        *(f"{unit} → 0.mlp" for unit in ("embed", "0.0", "0.1")),
        *(f"{unit} → logits" for unit in ("embed", "0.0", "0.1", "0.mlp")),
    ]


def test_heads_read_all_earlier_layers_and_none_of_their_own():
    _, _, edges = of(BASE.replace(feed_forward=(True, False), heads=1))
    assert [edge for edge in edges if edge.endswith("1.0.k")] == ["embed → 1.0.k", "0.0 → 1.0.k", "0.mlp → 1.0.k"]
    assert len(edges) == 3 + 2 + 3 * 3 + 4
    assert edges[-1] == "1.0 → logits"


def test_edges_pass_neither_blocks_without_a_residual_path_nor_parallel_layers():
    _, _, edges = of(BASE.replace(heads=1, residual=(True, False)))
    assert [edge for edge in edges if edge.endswith("1.mlp")] == ["1.0 → 1.mlp"]
    assert [edge for edge in edges if edge.endswith("logits")] == ["1.mlp → logits"]
    _, _, edges = of(OneLayerSpec(width=30))
    assert edges == [
        "embed → 0.0.q", "embed → 0.0.k", "embed → 0.0.v", "embed → 0.mlp", "0.0 → logits", "0.mlp → logits",
    ]  # fmt: skip


# Passes with removed edges against a decoder written out receiver by receiver.
CLEAN, CORRUPTED, *_ = pairs()
LAST = torch.tensor([SHAPE.length - 1])


def passed(ensemble, removed):
    stream, end = (mapped(ensemble, embedded, shared=[inputs]) for inputs in (CLEAN, CORRUPTED))
    others = mapped(ensemble, unit_outputs, [mapped(ensemble, plain_pass, [end], [torch.tensor([0])])[1]])
    removed = removed.expand(ensemble.size, -1, -1).double()
    return mapped(ensemble, split_pass, [stream, removed, others], [LAST])[0]


def matrix(ensemble, edges, share=1.0):
    """The shares of removed edges, `[unit receiver]`."""
    units, receivers = graph_of(ensemble.template).units, graph_of(ensemble.template).receivers
    removed = torch.zeros(len(units), len(receivers))
    for sender, receiver in edges:
        removed[units.index(sender), receivers.index(receiver)] = share
    return removed


@pytest.mark.parametrize("form", FORMS)
def test_edges_are_removed_as_in_a_decoder_written_out(form):
    ensemble = drawn(FORMS[form])
    edges = graph_of(ensemble.template).edges
    noise = torch.Generator().manual_seed(3)
    few, many, half = (torch.rand(len(edges), generator=noise) < share for share in (0.1, 0.6, 0.3))
    for chosen, share in ((few, 1.0), (many, 1.0), (half, 0.25)):
        removed = [edge for edge, taken in zip(edges, chosen.tolist(), strict=True) if taken]
        found = passed(ensemble, matrix(ensemble, removed, share))
        for member in range(2):
            model = Written(ensemble, member)
            model(model.embedded(CORRUPTED))
            shares = {(edge.sender, edge.receiver): torch.tensor(share) for edge in removed}
            expected = model(model.embedded(CLEAN), model.outputs, shares)[:, -1:]
            torch.testing.assert_close(found[member], expected, rtol=0, atol=1e-11)


OTHERS = {
    "merged": RecallSpec(width=8),
    "merged-factored": RecallSpec(width=8, factored_values=True, feed_forward_1="linear"),
    "parallel": OneLayerSpec(width=30, start="normal"),
    "shifted-values": BASE.replace(shift_values=1),
}


@pytest.mark.parametrize("form", [*FORMS, *OTHERS])
def test_none_removed_is_the_clean_run_and_all_removed_the_corrupted_one(form):
    others = {name: initialise(spec, SHAPE, [0, 1], dtype=torch.float64) for name, spec in OTHERS.items()}
    ensemble = others[form] if form in others else drawn(FORMS[form])
    every = graph_of(ensemble.template).edges
    clean, corrupted = (ensemble(inputs, LAST) for inputs in (CLEAN, CORRUPTED))
    assert (clean - corrupted).abs().mean() > 0.01
    torch.testing.assert_close(passed(ensemble, matrix(ensemble, [])), clean, rtol=0, atol=1e-11)
    torch.testing.assert_close(passed(ensemble, matrix(ensemble, every)), corrupted, rtol=0, atol=1e-11)


def test_a_removed_edge_leaves_no_rounding():
    """All edges from a unit removed: what it reads no longer matters, to the last bit."""
    ensemble = drawn(BASE).with_weights({name: value.float() for name, value in drawn(BASE).weights.items()})
    edges = graph_of(ensemble.template).edges
    silent = [edge for edge in edges if edge.sender == "0.1"]
    deaf = [edge for edge in edges if edge.receiver.startswith("0.1.")]
    stream, end = (mapped(ensemble, embedded, shared=[inputs]) for inputs in (CLEAN, CORRUPTED))
    others = mapped(ensemble, unit_outputs, [mapped(ensemble, plain_pass, [end], [torch.tensor([0])])[1]])
    before, after = (
        mapped(ensemble, split_pass, [stream, matrix(ensemble, removed).expand(2, -1, -1), others], [LAST])[0]
        for removed in (silent, silent + deaf)
    )
    assert torch.equal(before, after)


# Edge attribution patching: exact on a linear model, equal to a reference elsewhere, and integrated gradients.
PAIRS = pairs()


def test_is_exact_on_a_linear_model():
    given = linear.CLEAN, linear.CORRUPTED, linear.RIGHT, linear.WRONG
    found = score_edges(linear.linear_members(), *given)
    assert len(found.edges) == 3 + 3 * 2 + 3
    patched = patch_edges(linear.linear_members(), *given).edge_values  # which leaves gradients nothing to miss
    torch.testing.assert_close(found.edge_values, patched, rtol=1e-5, atol=1e-5)
    for member, expected in enumerate(linear.effects()):
        assert len({round(value, 6) for value in expected.values()}) == 6  # no two edges alike
        for edge, value in zip(found.edges, found.edge_values[member].tolist(), strict=True):
            assert value == pytest.approx(expected.get(str(edge), 0.0), abs=1e-5), edge
    back = score_edges(linear.linear_members(), *given, into="corrupted")
    torch.testing.assert_close(back.edge_values, -found.edge_values, rtol=1e-5, atol=1e-5)  # linear: the same way back
    more = score_edges(linear.linear_members(), *given, steps=7)  # the same gradient everywhere
    torch.testing.assert_close(more.edge_values, found.edge_values, rtol=1e-5, atol=1e-5)
    assert (found.passes, more.passes) == ((2, 1), (8, 7))


@pytest.mark.parametrize(("steps", "baseline"), [(1, "pair"), (3, "pair"), (3, "mean"), (2, "zero")])
@pytest.mark.parametrize("form", FORMS)
def test_equals_derivatives_of_a_decoder_written_out(form, steps, baseline):
    ensemble = drawn(FORMS[form])
    found = score_edges(ensemble, *PAIRS, steps=steps, baseline=baseline)
    edges = [(edge.sender, edge.receiver) for edge in found.edges]
    for member in range(2):
        expected = edge_slopes(ensemble, member, edges, steps, baseline)
        torch.testing.assert_close(found.edge_values[member], expected, rtol=0, atol=1e-10)
    assert found.edge_values[0].abs().median() > 1e-4


@pytest.mark.parametrize("form", ["post", "pre", "rms", "no-residual"])
@pytest.mark.parametrize(("steps", "baseline"), [(1, "pair"), (4, "pair"), (3, "mean"), (3, "zero")])
def test_edges_that_leave_a_unit_add_up_to_its_score(form, steps, baseline):
    """Both come from passes of different kinds: one stream for every receiver, and changes at the sites of a model."""
    ensemble = drawn(FORMS[form])
    edges, units = (method(ensemble, *PAIRS, steps=steps, baseline=baseline) for method in (score_edges, score_units))
    for place, unit in enumerate(units.units):
        leaving = [at for at, edge in enumerate(edges.edges) if edge.sender == unit]
        torch.testing.assert_close(edges.edge_values[:, leaving].sum(dim=1), units.values[:, place])


# Path patching of edges: equal to passes written out, to patched paths of heads, and exact on a linear model.
@pytest.mark.parametrize("baseline", ["pair", "mean"])
@pytest.mark.parametrize("form", FORMS)
def test_equals_a_pass_for_each_edge_written_out(form, baseline):
    ensemble = drawn(FORMS[form])
    found = patch_edges(ensemble, *PAIRS, baseline=baseline)
    clean, corrupted, *answers = PAIRS
    for member in range(2):
        model = Written(ensemble, member)
        stream, others = model.embedded(clean), replaced(model, clean, corrupted, baseline)
        plain = difference(model(stream), *answers)
        for edge, value in zip(found.edges, found.edge_values[member].tolist(), strict=True):
            alone = model(stream, others, {tuple(edge): torch.ones(())})
            assert value == pytest.approx(float(difference(alone, *answers) - plain), abs=1e-9), edge
    assert found.edge_values.abs().median() > 1e-3
    assert found.passes == (len(found.edges) + 2, 0)


@pytest.mark.parametrize("into", ["clean", "corrupted"])
def test_between_heads_it_is_patching_of_paths_past_feed_forward_layers(into):
    ensemble, (heads, later) = drawn(BASE), ([(0, 0), (0, 1)], [(1, 0), (1, 1)])
    found = patch_edges(ensemble, *PAIRS, into=into)
    clean, corrupted, *answers = PAIRS
    paths = patch_paths(ensemble, clean, corrupted, heads, later, *answers, through_feed_forward=False, into=into)
    base = paths.clean if into == "clean" else paths.corrupted
    places = {str(edge): at for at, edge in enumerate(found.edges)}
    expected = paths.difference - base[:, None, None, None]
    assert expected.abs().min() > 1e-5
    for sender in range(2):
        for receiver in range(2):
            for role, name in enumerate("qkv"):
                own = found.edge_values[:, places[f"0.{sender} → 1.{receiver}.{name}"]]
                torch.testing.assert_close(own, expected[:, sender, receiver, role], rtol=0, atol=1e-9)


def test_a_unit_has_its_largest_edge_and_progress_counts_edges():
    told = []
    found = patch_edges(drawn(BASE), *PAIRS, progress=lambda *each: told.append(each))
    assert (found.edge_values - score_edges(drawn(BASE), *PAIRS).edge_values).abs().max() > 0.05  # it is not linear
    leaving = [at for at, edge in enumerate(found.edges) if edge.sender == "0.1"]
    expected = found.edge_values[:, leaving].abs().amax(dim=1)
    torch.testing.assert_close(found.of(("0.1",)).squeeze(1), expected)
    assert told == [(done, len(found.edges)) for done in range(1, len(found.edges) + 1)]
    told.clear()
    score_edges(drawn(BASE), *PAIRS, steps=2, batch_size=len(PAIRS[0]), progress=lambda *each: told.append(each))
    assert told == [(len(PAIRS[0]), 2 * len(PAIRS[0])), (2 * len(PAIRS[0]), 2 * len(PAIRS[0]))]
