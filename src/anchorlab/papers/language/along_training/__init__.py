"""Language models along training: when "the" is learned, when the right word, and when heads shift and induce."""

from anchorlab.papers.language.along_training.study import STUDY

__all__ = ["STUDY"]
