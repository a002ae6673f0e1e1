"""Retrieval prompts: language models follow chains of premises in words."""

from anchorlab.papers.retrieval.language_models.language_models import STUDY

__all__ = ["STUDY"]
