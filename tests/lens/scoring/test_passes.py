"""Passes with removed edges against a decoder written out receiver by receiver."""

import pytest
import torch

from anchorlab.lens.scoring.graph import edges_of, receivers_of, units_of
from anchorlab.lens.scoring.passes import embedded, mapped, split_pass, unit_outputs
from anchorlab.models import OneLayerSpec, RecallSpec
from anchorlab.training.ensemble import initialise
from tests.lens.scoring.reference import BASE, FORMS, SHAPE, Written, drawn, pairs

CLEAN, CORRUPTED, *_ = pairs()
LAST = torch.tensor([SHAPE.length - 1])


def passed(ensemble, removed):
    stream, end = (mapped(ensemble, embedded, shared=[inputs]) for inputs in (CLEAN, CORRUPTED))
    others = mapped(ensemble, unit_outputs, [end])
    removed = removed.expand(ensemble.size, -1, -1).double()
    return mapped(ensemble, split_pass, [stream, removed, others], [LAST])[0]


def matrix(ensemble, edges, share=1.0):
    """The shares of removed edges, `[unit receiver]`."""
    units, receivers = units_of(ensemble.template), receivers_of(ensemble.template)
    removed = torch.zeros(len(units), len(receivers))
    for sender, receiver in edges:
        removed[units.index(sender), receivers.index(receiver)] = share
    return removed


@pytest.mark.parametrize("form", FORMS)
def test_edges_are_removed_as_in_a_decoder_written_out(form):
    ensemble = drawn(FORMS[form])
    edges = edges_of(ensemble.template)
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


def test_each_edge_alone_matters_in_its_own_way():
    """In a random decoder no two edges of the graph have the same effect, so none is another under a wrong name."""
    ensemble = drawn(BASE.replace(layer_norm=False))
    effects = [passed(ensemble, matrix(ensemble, [edge]))[0] for edge in edges_of(ensemble.template)]
    assert torch.pdist(torch.stack(effects).flatten(1)).min() > 1e-6


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
    every = edges_of(ensemble.template)
    clean, corrupted = (ensemble(inputs, LAST) for inputs in (CLEAN, CORRUPTED))
    assert (clean - corrupted).abs().mean() > 0.01
    torch.testing.assert_close(passed(ensemble, matrix(ensemble, [])), clean, rtol=0, atol=1e-11)
    torch.testing.assert_close(passed(ensemble, matrix(ensemble, every)), corrupted, rtol=0, atol=1e-11)


def test_a_removed_edge_leaves_no_rounding():
    """All edges from a unit removed: what it reads no longer matters, to the last bit."""
    ensemble = drawn(BASE).with_weights({name: value.float() for name, value in drawn(BASE).weights.items()})
    edges = edges_of(ensemble.template)
    silent = [edge for edge in edges if edge.sender == "0.1"]
    deaf = [edge for edge in edges if edge.receiver.startswith("0.1.")]
    stream, end = (mapped(ensemble, embedded, shared=[inputs]) for inputs in (CLEAN, CORRUPTED))
    others = mapped(ensemble, unit_outputs, [end])
    before, after = (
        mapped(ensemble, split_pass, [stream, matrix(ensemble, removed).expand(2, -1, -1), others], [LAST])[0]
        for removed in (silent, silent + deaf)
    )
    assert torch.equal(before, after)
