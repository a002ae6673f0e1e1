"""Edge attribution patching: exact on a linear model, equal to a reference elsewhere, and integrated gradients."""

import pytest
import torch

from anchorlab.lens import score_edges, score_units
from tests.lens.hand_built import identity_solver, other_anchor, stacked
from tests.lens.scoring import linear
from tests.lens.scoring.reference import BASE, FORMS, Written, difference, drawn, edge_slopes, pairs

PAIRS = pairs()


def test_is_exact_on_a_linear_model():
    given = linear.CLEAN, linear.CORRUPTED, linear.RIGHT, linear.WRONG
    found = score_edges(linear.linear_members(), *given)
    assert len(found.edges) == 3 + 3 * 2 + 3
    for member, expected in enumerate(linear.effects()):
        assert len({round(value, 6) for value in expected.values()}) == 6  # no two edges alike
        for edge, value in zip(found.edges, found.edge_values[member].tolist(), strict=True):
            assert value == pytest.approx(expected.get(str(edge), 0.0), abs=1e-5), edge
    back = score_edges(linear.linear_members(), *given, into="corrupted")
    torch.testing.assert_close(back.edge_values, -found.edge_values, rtol=1e-5, atol=1e-5)  # linear: the same way back
    more = score_edges(linear.linear_members(), *given, steps=7)
    torch.testing.assert_close(
        more.edge_values, found.edge_values, rtol=1e-5, atol=1e-5
    )  # and the same gradient everywhere


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("form", FORMS)
def test_equals_derivatives_of_a_decoder_written_out(form, steps):
    ensemble = drawn(FORMS[form])
    found = score_edges(ensemble, *PAIRS, steps=steps)
    edges = [(edge.sender, edge.receiver) for edge in found.edges]
    for member in range(2):
        expected = edge_slopes(ensemble, member, edges, steps)
        torch.testing.assert_close(found.edge_values[member], expected, rtol=0, atol=1e-10)
    assert found.edge_values[0].abs().median() > 1e-4


@pytest.mark.parametrize("form", ["post", "pre", "rms", "no-residual"])
@pytest.mark.parametrize("steps", [1, 4])
def test_edges_that_leave_a_unit_add_up_to_its_score(form, steps):
    """Both come from passes of different kinds: one stream for every receiver, and changes at the sites of a model."""
    ensemble = drawn(FORMS[form])
    edges, units = (method(ensemble, *PAIRS, steps=steps) for method in (score_edges, score_units))
    for place, unit in enumerate(units.units):
        leaving = [at for at, edge in enumerate(edges.edges) if edge.sender == unit]
        torch.testing.assert_close(edges.edge_values[:, leaving].sum(dim=1), units.values[:, place])


@pytest.mark.slow
def test_integrated_gradients_of_the_embedding_tend_to_the_whole_change():
    """The fundamental theorem: the mean gradient along a straight path, times its length, is the change at its end.

    A sum over m points on one side of their intervals misses it by a term in 1 / m, which two sums show and remove.
    """
    ensemble = drawn(FORMS["pre"])  # GELU, as the corners of ReLU would blur the law
    clean, corrupted, right, wrong = PAIRS
    models = [Written(ensemble, member) for member in range(2)]
    near, far = (
        torch.stack([difference(model(model.embedded(each)), right, wrong) for model in models])
        for each in (clean, corrupted)
    )
    errors = {}
    for steps in (4, 32, 128):
        found = score_edges(ensemble, *PAIRS, steps=steps)
        leaving = [at for at, edge in enumerate(found.edges) if edge.sender == "embed"]
        errors[steps] = found.edge_values[:, leaving].sum(dim=1) - (far - near)
    assert (errors[128].abs() < 0.02 * (far - near).abs()).all()
    assert ((4 * errors[128] - errors[32]).abs() / 3 < 0.002 * (far - near).abs()).all()
    torch.testing.assert_close(errors[32] / errors[128], torch.full((2,), 4.0).double(), rtol=0.2, atol=0)
    assert (errors[4].abs() > 10 * errors[128].abs()).all()


@pytest.mark.parametrize(("steps", "expected"), [(1, 0.0), (2, -30.0), (4, -15.0)])
def test_saturated_attention_is_seen_by_integrated_gradients_alone(steps, expected):
    """The broadcasting head's scores are 60 where the anchor was brought: its softmax is flat but half way.

    With the anchor moved, the difference of the logits is a - b, for the attention a to the clean and b to the
    corrupted place. Half way both scores are 30 and a = b = 1/2, so that the difference changes by 2 a b 60 = 30 with
    each of both marks; at either end its derivative is 0. One mark changes by -1 and the other by 1, which gives -60 in
    the one of all steps that is half way.
    """
    clean, corrupted, right, wrong, _ = other_anchor()
    found = score_edges(stacked(identity_solver(), identity_solver()), clean, corrupted, right, wrong, steps=steps)
    at = {str(edge): value for edge, value in zip(found.edges, found.edge_values[1].tolist(), strict=True)}
    for edge in ("embed → 0.0.v", "0.0 → 1.0.k"):
        assert at.pop(edge) == pytest.approx(expected, abs=1e-3)
    assert all(abs(value) < 2.001 for value in at.values())


def test_every_member_has_the_scores_that_it_has_alone():
    ensemble = drawn(BASE, members=3)
    together = score_edges(ensemble, *PAIRS, steps=2)
    assert (together.edge_values[0] - together.edge_values[1]).abs().max() > 0.01
    for member in range(3):
        alone = score_edges(ensemble.select([member]), *PAIRS, steps=2)
        torch.testing.assert_close(together.edge_values[[member]], alone.edge_values, rtol=0, atol=1e-12)


def test_counts_its_passes():
    """The other run once; and for each step a run and its gradient, the first of which is the plain run."""
    ensemble = drawn(BASE, members=1)
    assert score_edges(ensemble, *PAIRS).passes == (2, 1)
    assert score_edges(ensemble, *PAIRS, steps=5).passes == (6, 5)
