"""Analyse vectors of the residual stream, queries and keys."""
