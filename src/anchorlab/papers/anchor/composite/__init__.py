"""The composite anchor function: learned operations, mapping sequences and depth."""

from anchorlab.papers.anchor.composite.composite import STUDY

__all__ = ["STUDY"]
