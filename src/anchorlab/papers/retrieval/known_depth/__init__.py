"""Retrieval prompts: models of known depth answer the equations that language models are asked."""

from anchorlab.papers.retrieval.known_depth.study import STUDY

__all__ = ["STUDY"]
