"""The values that methods return, and controls."""

import pytest
import torch

from anchorlab.errors import SpecError
from anchorlab.lens import Edge, Passes, Scores, other_members, random_scores, score_edges, weight_norms
from anchorlab.models import FNNSpec, RecallSpec
from anchorlab.training.ensemble import initialise
from tests.lens.scoring import linear
from tests.lens.scoring.reference import BASE, FORMS, SHAPE, drawn

NAMES = ("embed", "0.0", "0.1", "1.0")
EDGES = (
    Edge("embed", "0.0.q"), Edge("0.0", "1.0.k"), Edge("0.1", "1.0.v"), Edge("0.0", "logits"), Edge("1.0", "logits"),
)  # fmt: skip
VALUES = torch.tensor([[0.5, 3.0, -1.0, -3.0, 2.0], [0.0, 0.25, 4.0, 0.0, 0.25]])
FOUND = Scores.of_edges("hand", NAMES, EDGES, VALUES, Passes(2, 1))


def test_scores_of_units_ranks_and_circuits():
    """Two edges of opposite signs leave unit 0.0, which a sum would cancel."""
    assert FOUND.values.tolist() == [[0.5, 3.0, 1.0, 2.0], [0.0, 0.25, 4.0, 0.25]]
    assert FOUND.ranking.tolist() == [[1, 3, 2, 0], [2, 1, 3, 0]]
    signed = Scores("hand", NAMES, torch.tensor([[0.5, -3.0, 1.0, 2.0]]), Passes(0, 0))
    assert signed.ranking.tolist() == [[1, 3, 2, 0]]
    assert FOUND.circuit(2.0) == (EDGES[1], EDGES[3], EDGES[4])
    assert FOUND.circuit(0.25, member=1) == (EDGES[1], EDGES[2], EDGES[4])
    left = {edge.sender for edge in FOUND.circuit(2.0)}
    assert left == {unit for unit, value in zip(NAMES, FOUND.values[0].tolist(), strict=True) if value >= 2.0}


def test_tables_and_named_units_in_any_order():
    assert FOUND.of(["1.0", "0.0"]).tolist() == [[2.0, 3.0], [0.25, 0.25]]
    assert FOUND.table.rows()[:2] == [(0, "embed", 0.5), (0, "0.0", 3.0)]
    assert FOUND.table.shape == (8, 3)
    assert FOUND.edge_table.rows()[8] == (1, "0.0 → logits", 0.0)


# Controls: norms by hand, draws that repeat, and the scores of another member.
def test_norms_of_merged_weights_and_of_weights_that_are_counts():
    """Every weight 2 and every bias 3 of one head, 1 elsewhere: the norms are roots of counts."""
    spec = FORMS["post-with-biases"]  # 2 heads of 6, width 8, hidden 9
    ensemble = drawn(spec)
    ones = {name: torch.ones_like(value) for name, value in ensemble.weights.items()}
    for role in "QKV":
        ones[f"blocks.1.attn.W_{role}"][1, :, 6:] = 2
        ones[f"blocks.1.attn.b_{role}"][1, 6:] = 3
    ones["blocks.1.attn.W_O"][1, 6:] = 2
    found = weight_norms(ensemble.with_weights(ones))
    plain, head = 4 * 8 * 6 + 3 * 6, 4 * 4 * 8 * 6 + 9 * 3 * 6
    perceptron = 2 * 8 * 9 + 9 + 8
    squares = torch.tensor([8 * 11 + 8 * 6, plain, plain, perceptron, plain, plain, perceptron]).repeat(2, 1)
    squares[1, 5] = head
    assert found.units == ("embed", "0.0", "0.1", "0.mlp", "1.0", "1.1", "1.mlp")
    torch.testing.assert_close(found.values.square(), squares.double())
    assert found.passes == (0, 0)
    ensemble = initialise(RecallSpec(width=8), SHAPE, [0])
    ones = ensemble.with_weights({name: torch.ones_like(value) for name, value in ensemble.weights.items()})
    assert weight_norms(ones).of(["0.0"]).item() ** 2 == pytest.approx(2 * 64)


def test_random_scores_repeat_and_differ():
    ensemble = drawn(BASE, members=3)
    found = random_scores(ensemble).values
    assert found.shape == (3, 7) and torch.pdist(found).min() > 0.1
    assert torch.equal(found, random_scores(ensemble).values)
    assert torch.equal(found[:2], random_scores(ensemble.select([0, 1])).values)  # whoever the neighbours are
    assert (found - random_scores(ensemble, seed=1).values).abs().min() > 1e-4
    many = torch.cat([random_scores(ensemble, seed=seed).values.flatten() for seed in range(100)])
    assert many.mean().item() == pytest.approx(0.5, abs=0.03)  # 2100 draws: 5 standard errors


def test_other_members_hand_on_their_scores():
    found = score_edges(linear.linear_members(), linear.CLEAN, linear.CORRUPTED, linear.RIGHT, linear.WRONG)
    other = other_members(found)
    assert torch.equal(other.values, found.values[[1, 0]]) and torch.equal(other.edge_values, found.edge_values[[1, 0]])
    assert other.method == "edge attribution patching of another member"
    three = other_members(random_scores(drawn(BASE, members=3)))
    assert torch.equal(three.values, random_scores(drawn(BASE, members=3)).values[[2, 0, 1]])


OTHER = initialise(FNNSpec(width=8), SHAPE, [0])
REFUSED = [
    *((lambda name=name, ask=ask: ask(Scores(name, NAMES, VALUES[:, :4], Passes(0, 0))),
       rf"^edges: {name} scores no edges; use score_edges or prune_edges$")
      for name, ask in (("random", lambda one: one.edge_table), ("weight norms", lambda one: one.circuit(1.0)))),
    (lambda: FOUND.of(["0.0", "0.2"]), r"^units\.1: unknown unit '0\.2'; did you mean '0\.\d'\?$"),
    (lambda: FOUND.circuit(1.0, member=2), r"^member: there is no member 2; choose from 0 to 1$"),
    *((lambda control=control: control(OTHER), r"^model: is of type \w+; give a transformer, such as a decoder")
      for control in (weight_norms, random_scores)),
    (lambda: other_members(random_scores(drawn(BASE, members=1))),
     r"^scores: are of a single member; give scores of at least two$"),
]  # fmt: skip


@pytest.mark.parametrize(("ask", "message"), REFUSED)
def test_bad_questions(ask, message):
    with pytest.raises(SpecError, match=message):
        ask()
