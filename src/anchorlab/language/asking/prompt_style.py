"""How questions are presented: as a chat or as plain text, with worked examples, with the beginning of the answer."""

from collections.abc import Sequence
from dataclasses import replace

from pydantic import Field

from anchorlab.language.asking.request import Request, Turn
from anchorlab.spec import Spec
from anchorlab.tasks import Question


class Manner(Spec):
    """How questions are presented to a model.

    chat: whether to use the model's chat template; False: one text to complete, in which each answer ends with its line
    examples: the number of worked examples before each question
    begun: whether to give the beginning of the answer, such as "The value of s is". Without it, a chat model often
        begins every answer with the same word
    instruction: whether each question carries the paper's request to give only the answer
    tokens: the maximum number of tokens to generate
    """

    chat: bool = True
    examples: int = Field(0, ge=0, le=64)
    begun: bool = False
    instruction: bool = True
    tokens: int = Field(16, ge=1, le=4096)

    def request(
        self, question: Question, worked: Sequence[Question] = (), temperature: float = 0.0, seed: int = 0
    ) -> Request:
        """Return the request for a question, after the first `examples` of the worked questions with their answers."""
        turns = [
            turn
            for one in worked[: self.examples]
            for turn in (
                Turn("user", self._asked(one)),
                Turn("assistant", f"{one.begun} {one.answer}" if self.begun else one.answer),
            )
        ]
        return Request(
            turns=(*turns, Turn("user", self._asked(question))),
            begun=question.begun if self.begun else "",
            chat=self.chat,
            temperature=temperature,
            seed=seed,
            tokens=self.tokens,
            stop="" if self.chat else "\n",
        )

    def without_premises(self, question: Question, worked: Sequence[Question] = ()) -> Request:
        """Return the request without the question's premises, which shows what the model answers in any case."""
        asked = self.request(question, worked)
        last = question.text.split("\n")[-1] + (f" {question.instruction}" if self.instruction else "")
        return replace(asked, turns=(*asked.turns[:-1], Turn("user", last)))

    def _asked(self, question: Question) -> str:
        return question.prompt if self.instruction else question.text
