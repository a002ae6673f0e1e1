"""Heads of a language model: which of them shift, broadcast, attend to the first token, match and induce."""

from anchorlab.papers.language.heads.study import STUDY

__all__ = ["STUDY"]
