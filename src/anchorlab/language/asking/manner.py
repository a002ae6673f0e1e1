"""The manner of asking: as a chat or as a text to be continued, with worked examples, with the answer begun."""

from collections.abc import Sequence

from pydantic import Field

from anchorlab.language.asking.request import Request, Turn
from anchorlab.spec import Spec
from anchorlab.tasks import Question


class Manner(Spec):
    """How questions are put to a model.

    chat: through the model's chat template; else as one text to be continued, each answer ending with its line
    examples: the number of worked examples before each question
    begun: whether the beginning of the answer is given, such as "The value of s is". Without it the first word of a
        chat model's answer is often the same whatever the question
    instruction: whether the paper's request to say the answer alone goes with each question
    tokens: the most tokens to say
    """

    chat: bool = True
    examples: int = Field(0, ge=0, le=64)
    begun: bool = False
    instruction: bool = True
    tokens: int = Field(16, ge=1, le=4096)

    def request(
        self, question: Question, worked: Sequence[Question] = (), temperature: float = 0.0, seed: int = 0
    ) -> Request:
        """Return a question after the first `examples` of the worked ones, whose answers are given."""
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
        """Return the request without the question's premises: what a model answers to it, it answers to anything."""
        asked = self.request(question, worked)
        last = question.text.split("\n")[-1] + (f" {question.instruction}" if self.instruction else "")
        return Request(
            turns=(*asked.turns[:-1], Turn("user", last)),
            begun=asked.begun,
            chat=asked.chat,
            tokens=asked.tokens,
            stop=asked.stop,
        )

    def _asked(self, question: Question) -> str:
        return question.prompt if self.instruction else question.text
