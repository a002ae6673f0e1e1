"""Pretrained language models behind the lens's instruments."""

from anchorlab.language.model import LanguageModel
from anchorlab.language.pretrained import pretrained, wrap

__all__ = ["LanguageModel", "pretrained", "wrap"]
