"""Language models: which truncated matrix brings out facts, and whether it does."""

from anchorlab.papers.language.truncation_search.study import STUDY

__all__ = ["STUDY"]
