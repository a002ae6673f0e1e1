"""Pretrained language models, ready for every instrument of the lens."""

from anchorlab.language.answers import Answers, Questions
from anchorlab.language.encode import TokenisedTexts, windows
from anchorlab.language.losses import TextBits, text_bits, text_losses
from anchorlab.language.model import LanguageModel
from anchorlab.language.next_words import continue_text, edited_weights, next_words
from anchorlab.language.packaged import packaged_folder
from anchorlab.language.pairs import TextPairs, indirect_objects, repetitions
from anchorlab.language.pretrained import pretrained, wrap
from anchorlab.language.prompts import Prompt, facts
from anchorlab.language.sample_text import english_page
from anchorlab.language.to_hugging_face import to_hugging_face
from anchorlab.language.truncation_controls import TruncationControls, control_truncation
from anchorlab.language.truncations import FRACTIONS, TruncationSearch, search_truncations
