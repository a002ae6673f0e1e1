"""Buffers: does each step of a chain keep a subspace of its own?"""

from anchorlab.papers.retrieval.buffers.buffers import STUDY

__all__ = ["STUDY"]
