"""What a formulation of the retrieval problem consists of: steps of premises, and questions about a chain."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from string import Formatter

import numpy as np
from jaxtyping import Int

Key = tuple[str, ...]
"""The words of a premise that come from the side of the question, such as `("b",)` in "b = 2" and `("f", "2")`."""

Values = Sequence[Int[np.ndarray, "batch _"]]
"""For each step, which value of its pool each premise has."""

Hops = Callable[[Values, Int[np.ndarray, "batch root"]], list[Int[np.ndarray, "batch"]]]
"""Finds, from the question on, which premise each hop reads."""


@dataclass(frozen=True)
class Step:
    """Premises of one form, such as "b = 2".

    template: a line, with `{0}`, `{1}` for the words of its key and `{value}` for its value
    keys: the words of each premise on the side of the question
    pools: the values, in the form that the premises give them. The values of the premises that share a pool differ
    pool_of: the index of the pool of each premise; empty: all share one
    shuffled: whether the paper's examples shuffle the premises; else they have the order of the keys
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
    """One way to put the retrieval problem into words.

    steps: the premises of each step; the first has the answers as values
    roots: how many premises the question chooses from, for each of its words
    hops: finds the premises that lead from a question to its answer
    reads: the step whose premises each hop reads
    levels: how many steps from the answer each hop is. A question of depth d begins with the hops of level d: the keys
        of the premises that they read are its words
    questions: the question's template at each depth at which it can be asked, with `{0}`, `{1}` for those words
    begun: the beginning of the answer at each of these depths
    instruction: what the paper adds to the question, so that a model says the answer alone
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
