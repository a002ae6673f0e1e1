"""Analyse weight matrices: circuits of heads, associative memories, and low-rank truncations."""

from anchorlab.lens.weights.lowrank import FRACTIONS, best_truncations, matrices, truncations
from anchorlab.lens.weights.memories import memory, memory_along
from anchorlab.lens.weights.qk_ov import HeadCircuits, ov, qk
