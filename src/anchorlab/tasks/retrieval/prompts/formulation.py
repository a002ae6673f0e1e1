"""The parts of a formulation of the retrieval problem: steps of premises, and questions with the path to the answer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from string import Formatter

import numpy as np
from jaxtyping import Int

Key = tuple[str, ...]
"""The words by which a premise is looked up, such as `("b",)` for "b = 2" and `("f", "2")` for "f(2) = 3"."""

Values = Sequence[Int[np.ndarray, "batch _"]]
"""For each step, the index of each premise's value in its pool."""

Hops = Callable[[Values, Int[np.ndarray, "batch root"]], list[Int[np.ndarray, "batch"]]]
"""A function that finds the premise that each hop reads, from the question to the answer."""


@dataclass(frozen=True)
class Step:
    """Premises of one form, such as "b = 2".

    template: a line, with `{0}`, `{1}` for the words of the key and `{value}` for the value
    keys: the key of each premise, the words by which it is looked up
    pools: the possible values, spelled as in the premises. Premises that share a pool have different values
    pool_of: the index of each premise's pool; empty: all premises share one pool
    shuffled: whether the paper's examples shuffle the premises; if not, they follow the order of the keys
    """

    template: str
    keys: tuple[Key, ...]
    pools: tuple[tuple[str, ...], ...]
    pool_of: tuple[int, ...] = ()
    shuffled: bool = True

    @property
    def pool_indices(self) -> tuple[int, ...]:
        """The index of the pool of each premise."""
        return self.pool_of or (0,) * len(self.keys)


@dataclass(frozen=True)
class Formulation:
    """One way to express the retrieval problem in words.

    steps: the premises of each step; the first step has the answers as values
    roots: the number of premises that the question chooses from, for each of its words
    hops: finds the premises that lead from a question to its answer
    reads: the step whose premises each hop reads
    levels: the number of steps from each hop to the answer. A question of depth d begins with the hops of level d: its
        words are the keys of the premises that these hops read
    questions: the question's template at each depth at which it can be asked, with `{0}`, `{1}` for its words
    begun: the beginning of the answer at each of these depths
    instruction: the paper's addition to the question, so that a model gives only the answer
    """

    steps: tuple[Step, ...]
    roots: tuple[int, ...]
    hops: Hops
    reads: tuple[int, ...]
    levels: tuple[int, ...]
    questions: dict[int, str]
    begun: dict[int, str]
    instruction: str

    @property
    def depth(self) -> int:
        """The depth of a question about a whole chain."""
        return max(self.levels)

    @cached_property
    def candidates(self) -> tuple[str, ...]:
        """The words that can be answers, in the order of the first step's pools."""
        return tuple(dict.fromkeys(word for pool in self.steps[0].pools for word in pool))


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


def pieces(template: str) -> list[str]:
    """Return a template cut into literal text and slots such as `{0}`."""
    found: list[str] = []
    for literal, slot, _, _ in Formatter().parse(template):
        found += [literal] * bool(literal) + ([] if slot is None else [f"{{{slot}}}"])
    return found
