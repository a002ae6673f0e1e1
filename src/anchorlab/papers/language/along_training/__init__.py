"""Language models along training: when "the" and the right word are learned, and when heads shift and induce."""

from anchorlab.papers.language.along_training.along_training import STUDY

__all__ = ["STUDY"]
