"""Pretrained language models, ready for every instrument of the lens."""

from anchorlab.language.answers import Answers, Questions
from anchorlab.language.losses import text_losses
from anchorlab.language.model import LanguageModel
from anchorlab.language.next_words import continue_text, edited_weights, next_words
from anchorlab.language.pretrained import pretrained, wrap
from anchorlab.language.prompts import Prompt
from anchorlab.language.to_hugging_face import to_hugging_face
from anchorlab.language.truncation_controls import TruncationControls, control_truncation
from anchorlab.language.truncations import FRACTIONS, TruncationSearch, search_truncations

__all__ = [
    "FRACTIONS",
    "Answers",
    "LanguageModel",
    "Prompt",
    "Questions",
    "TruncationControls",
    "TruncationSearch",
    "continue_text",
    "control_truncation",
    "edited_weights",
    "next_words",
    "pretrained",
    "search_truncations",
    "text_losses",
    "to_hugging_face",
    "wrap",
]
