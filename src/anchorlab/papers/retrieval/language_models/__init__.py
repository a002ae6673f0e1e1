"""Retrieval prompts: language models follow chains of premises in words."""

from anchorlab.papers.retrieval.language_models.study import STUDY

__all__ = ["STUDY"]
