"""A question for a language model: its text, its answer, and what is known about the way to it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Question:
    """One question in words.

    Fields
        text: the premises and the question, a line each
        instruction: what the paper adds, so that a model says the answer alone
        begun: the beginning of the answer, which a model can be made to continue, such as "The value of s is"
        answer: the right word
        candidates: the acceptable answers, the right one among them
        depth: the number of steps from the question to the answer
        path: the words read from the question on, the last of them being the answer
        hops: the name of each step of the path
        distances: the number of tokens of the task from each word of the path back to the one before, first from the
            question's end; for a question of two words each of them begins there
        order: the number of the premise at each place, premises being numbered step by step from the answer on
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
