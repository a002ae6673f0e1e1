"""Associative memory: rank one forgets the noise as t^(-1/2)."""

from anchorlab.papers.truncation.rank_one_noise.rank_one_noise import STUDY

__all__ = ["STUDY"]
