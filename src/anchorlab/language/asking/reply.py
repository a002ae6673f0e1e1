"""Classify a model's text: an acceptable answer, a refusal, or neither."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from anchorlab.language.asking.request import Said

_AROUND = " \t\r\n\"'`“”‘’*_.,;:!?()[]<>$\\"
_REFUSAL = re.compile(
    r"\b(i(['’]m| am) (sorry|unable|not able)|i can ?(['’]|no)t|as an ai|cannot (answer|determine|help)|not enough "
    r"information)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Reply:
    """A model's text and its classification.

    Fields
        text: the model's text
        kind: `answer`, `refusal`, or `other` if the text is neither an acceptable answer nor a refusal
        answer: the acceptable answer as the question spells it; None for the other kinds
    """

    text: str
    kind: Literal["answer", "refusal", "other"]
    answer: str | None = None


def read_reply(said: Said, candidates: Sequence[str], begun: str = "", continued: bool = False) -> Reply:
    """Classify a model's text as an acceptable answer, a refusal or neither.

    Only the first line that is not empty counts, without surrounding punctuation and quotes, and regardless of case. It
    must be a candidate and nothing else; as in the paper (section 4), any other text is not acceptable.

    Args:
        said: what the model said
        candidates: the acceptable answers
        begun: the beginning of the answer, removed if the text repeats it
        continued: whether the text continues `begun`; it then only has to begin with a candidate

    >>> read_reply(Said("**Berlin**."), ("Amsterdam", "Berlin")).answer
    'Berlin'
    """
    line = next((line for line in said.text.split("\n") if line.strip(_AROUND)), "").strip(_AROUND)
    if begun and line.casefold().startswith(begun.casefold()):
        line = line[len(begun) :].strip(_AROUND)
    for word in sorted(candidates, key=len, reverse=True):
        end = re.match(rf"{re.escape(word)}(?!\w|[.,]\d)", line, re.IGNORECASE)
        if end and (continued or end.end() == len(line)):
            return Reply(said.text, "answer", word)
    refused = said.finish == "refusal" or _REFUSAL.search(said.text)
    return Reply(said.text, "refusal" if refused else "other")
