"""Reading comprehension: the question's anchor is looked up in the text."""

from anchorlab.papers.anchor.reading_comprehension.reading_comprehension import STUDY

__all__ = ["STUDY"]
