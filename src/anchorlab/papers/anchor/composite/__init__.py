"""The composite anchor function: learned operations, mapping sequences and depth."""

from anchorlab.papers.anchor.composite.study import STUDY

__all__ = ["STUDY"]
