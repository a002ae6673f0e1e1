"""Language models: "the" in place of the right word, and what truncation does to it."""

from anchorlab.papers.language.noise.noise import STUDY

__all__ = ["STUDY"]
