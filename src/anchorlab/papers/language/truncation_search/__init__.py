"""Language models: which truncated matrix brings out facts, and does it hold up against controls?"""

from anchorlab.papers.language.truncation_search.truncation_search import STUDY

__all__ = ["STUDY"]
