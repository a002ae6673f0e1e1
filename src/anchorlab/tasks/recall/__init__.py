"""Recall in context, and associative memory, both with noise."""
