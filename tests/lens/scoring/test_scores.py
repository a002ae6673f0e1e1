"""The values that methods return: rankings, circuits, tables."""

import pytest
import torch

from anchorlab.errors import SpecError
from anchorlab.lens import Edge, Passes, Scores

UNITS = ("embed", "0.0", "0.1", "1.0")
EDGES = (
    Edge("embed", "0.0.q"),
    Edge("0.0", "1.0.k"),
    Edge("0.1", "1.0.v"),
    Edge("0.0", "logits"),
    Edge("1.0", "logits"),
)
VALUES = torch.tensor([[0.5, 3.0, -1.0, -3.0, 2.0], [0.0, 0.25, 4.0, 0.0, 0.25]])
FOUND = Scores.of_edges("hand", UNITS, EDGES, VALUES, Passes(2, 1))


def test_a_unit_has_the_largest_size_of_the_edges_that_leave_it():
    """Two edges of opposite signs leave unit 0.0, which a sum would cancel."""
    assert FOUND.values.tolist() == [[0.5, 3.0, 1.0, 2.0], [0.0, 0.25, 4.0, 0.25]]


def test_ranks_by_size_and_ties_in_order():
    assert FOUND.ranking.tolist() == [[1, 3, 2, 0], [2, 1, 3, 0]]
    signed = Scores("hand", UNITS, torch.tensor([[0.5, -3.0, 1.0, 2.0]]), Passes(0, 0))
    assert signed.ranking.tolist() == [[1, 3, 2, 0]]


def test_a_circuit_has_the_edges_from_a_threshold_on():
    assert FOUND.circuit(2.0) == (EDGES[1], EDGES[3], EDGES[4])
    assert FOUND.circuit(0.25, member=1) == (EDGES[1], EDGES[2], EDGES[4])
    left = {edge.sender for edge in FOUND.circuit(2.0)}
    assert left == {unit for unit, value in zip(UNITS, FOUND.values[0].tolist(), strict=True) if value >= 2.0}


def test_named_units_in_any_order():
    assert FOUND.of(["1.0", "0.0"]).tolist() == [[2.0, 3.0], [0.25, 0.25]]


def test_tables():
    assert FOUND.table.rows()[:2] == [(0, "embed", 0.5), (0, "0.0", 3.0)]
    assert FOUND.table.shape == (8, 3)
    assert FOUND.edge_table.rows()[8] == (1, "0.0 → logits", 0.0)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (
            lambda: Scores("random", UNITS, VALUES[:, :4], Passes(0, 0)).edge_table,
            r"^edges: random scores no edges; use score_edges or prune_edges$",
        ),
        (lambda: FOUND.of(["0.0", "0.2"]), r"^units\.1: unknown unit '0\.2'; did you mean '0\.\d'\?$"),
        (lambda: FOUND.circuit(1.0, member=2), r"^member: there is no member 2; choose from 0 to 1$"),
        (
            lambda: Scores("weight norms", UNITS, VALUES[:, :4], Passes(0, 0)).circuit(1.0),
            r"^edges: weight norms scores no edges; use score_edges or prune_edges$",
        ),
    ],
)
def test_bad_questions(ask, message):
    with pytest.raises(SpecError, match=message):
        ask()
