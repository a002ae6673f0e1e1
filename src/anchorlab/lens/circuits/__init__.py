"""Circuits: the attention paths that suffice for a task, found by replacing attention with hypotheses about it."""

from anchorlab.lens.circuits.circuit import Circuit, CircuitPath, Head
from anchorlab.lens.circuits.explanation import (
    AFTER_SAME,
    EVERYWHERE,
    RESTS,
    SAME,
    AttentionRule,
    Explanation,
    attention_map,
    rule_cells,
    rule_places,
)
from anchorlab.lens.circuits.hypotheses import hypotheses
from anchorlab.lens.circuits.losses import Assignment, AttentionLosses
from anchorlab.lens.circuits.search import LEEWAY, find_circuit
