"""Path patching of edges: equal to passes written out, to patched paths of heads, and exact on a linear model."""

import pytest
import torch

from anchorlab.lens import patch_edges, patch_paths, score_edges
from tests.lens.scoring import linear
from tests.lens.scoring.reference import BASE, FORMS, Written, difference, drawn, pairs

PAIRS = pairs()


@pytest.mark.parametrize("form", FORMS)
def test_equals_a_pass_for_each_edge_written_out(form):
    ensemble = drawn(FORMS[form])
    found = patch_edges(ensemble, *PAIRS)
    clean, corrupted, *answers = PAIRS
    for member in range(2):
        model = Written(ensemble, member)
        model(model.embedded(corrupted))
        others, stream = model.outputs, model.embedded(clean)
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


def test_a_linear_model_leaves_gradients_nothing_to_miss():
    given = linear.CLEAN, linear.CORRUPTED, linear.RIGHT, linear.WRONG
    found = patch_edges(linear.linear_members(), *given)
    for member, expected in enumerate(linear.effects()):
        for edge, value in zip(found.edges, found.edge_values[member].tolist(), strict=True):
            assert value == pytest.approx(expected.get(str(edge), 0.0), abs=1e-5), edge
    bent = drawn(BASE)
    assert (patch_edges(bent, *PAIRS).edge_values - score_edges(bent, *PAIRS).edge_values).abs().max() > 0.05


def test_a_unit_has_its_largest_edge_and_progress_counts_edges():
    told = []
    found = patch_edges(drawn(BASE), *PAIRS, progress=lambda *each: told.append(each))
    leaving = [at for at, edge in enumerate(found.edges) if edge.sender == "0.1"]
    expected = found.edge_values[:, leaving].abs().amax(dim=1)
    torch.testing.assert_close(found.of(("0.1",)).squeeze(1), expected)
    assert told == [(done, len(found.edges)) for done in range(1, len(found.edges) + 1)]
