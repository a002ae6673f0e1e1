"""Retrieval: the emergence of attention heads during training."""

from anchorlab.papers.retrieval.emergence.emergence import STUDY

__all__ = ["STUDY"]
