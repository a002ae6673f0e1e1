"""Measure what attention heads do."""
