"""Methods of interpretability, scored against every circuit of a model."""

from anchorlab.papers.truth.methods.study import STUDY

__all__ = ["STUDY"]
