"""A question for a language model: its text, its answer, and the path from one to the other."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Question:
    """One question in words.

    Fields
        text: the premises and the question, each on its own line
        instruction: the paper's addition to the question, so that a model gives only the answer
        begun: a beginning of the answer for the model to continue, such as "The value of s is"
        answer: the right word
        candidates: the acceptable answers, the right one among them
        depth: the number of steps from the question to the answer
        path: the words read from the question on; the last is the answer
        hops: the name of each step of the path
        distances: the distance of each word of the path from the word before it, in tokens of the task; a step that
            starts at a word of the question counts from the end of the question
        order: the number of the premise at each place; premises are numbered step by step from the answer on
    """

    text: str
    instruction: str
    begun: str
    answer: str
    candidates: tuple[str, ...]
    depth: int
    path: tuple[str, ...]
    hops: tuple[str, ...]
    distances: tuple[int, ...]
    order: tuple[int, ...]

    @property
    def prompt(self) -> str:
        """The text with the paper's instruction, as in its appendix A."""
        return f"{self.text} {self.instruction}"

    @property
    def chance(self) -> float:
        """The accuracy of guessing one of the candidates."""
        return 1 / len(self.candidates)
