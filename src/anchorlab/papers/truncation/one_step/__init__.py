"""One gradient step: the feed-forward layer learns the noise more surely than the attention."""

from anchorlab.papers.truncation.one_step.one_step import STUDY

__all__ = ["STUDY"]
