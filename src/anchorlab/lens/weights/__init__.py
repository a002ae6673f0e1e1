"""Analyse weight matrices: circuits of heads, associative memories, and low-rank truncations."""
