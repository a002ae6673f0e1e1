"""Rules: a pattern and its answer, written `pattern -> answer`."""

from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler

from anchorlab.errors import SpecError
from anchorlab.spec import text_type
from anchorlab.tasks.anchor.expression import Expression
from anchorlab.tasks.anchor.pattern import Pattern

_REMEDY = "write `pattern -> answer`, such as `A x -> A(x)`"


@dataclass(frozen=True)
class Rule:
    """A pattern, and the answer to the sequences that contain it.

    A x -> A(x)              one anchor, its operation on the key right after it: equations (1)-(4)
    x A B -> B(A(x))         two anchors applied in turn: equation (5)
    m A n ... m $ -> n       the token after the anchor, if the last token repeats the one before it: equation (6)
    """

    pattern: Pattern
    answer: Expression

    @classmethod
    def parse(cls, text: str) -> "Rule":
        """Parse `pattern -> answer`. Errors: `SpecError` for any other text, or an answer with an unknown slot."""
        pattern_text, arrow, answer_text = text.partition("->")
        if not arrow:
            raise SpecError("rule", f"{text!r:.80} has no `->`", _REMEDY)
        pattern, answer = Pattern.parse(pattern_text), Expression(answer_text.strip())
        check_names(answer, pattern, "answer")
        return cls(pattern, answer)

    @property
    def text(self) -> str:
        """The rule in the form that `parse` accepts."""
        return f"{self.pattern.text} -> {self.answer.text}"

    def __str__(self) -> str:
        return self.text

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> Any:
        """Store the rule as text in specifications."""
        return handler.generate_schema(text_type(cls, cls.parse, _REMEDY))


def check_names(answer: Expression, pattern: Pattern, field: str) -> None:
    """Raise `SpecError` if an answer mentions a slot that the pattern does not have, or pairs that it does not form."""
    if "trained" in answer.functions and len(pattern.anchors) != 2:
        problem = f"`{answer.text:.80}` takes the pairs of training, but `{pattern.text}` holds no pair of anchors"
        raise SpecError(field, problem, "use trained only with two anchors")
    unknown = sorted(answer.names - set(pattern.slots))
    if unknown:
        problem = f"`{answer.text:.80}` mentions {unknown[0]!r}, which `{pattern.text}` does not hold"
        raise SpecError(field, problem, f"use {', '.join(pattern.slots)}")
