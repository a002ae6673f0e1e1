"""Open questions: what heads, layers, width, learning rate and other choices do for learning."""

from anchorlab.papers.anchor.open_questions.open_questions import STUDY

__all__ = ["STUDY"]
