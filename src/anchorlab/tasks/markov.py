"""Markov chains over tokens, sampled in bulk, from the packaged bigram tables or uniform."""

import json
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources

import numpy as np
from jaxtyping import Float, Int
from numpy.random import Generator

from anchorlab.spec import unknown_name
from anchorlab.tasks.alias import AliasTable

_BLOCK = 8192


@dataclass(frozen=True, eq=False)
class MarkovChain:
    """A chain z_1 ~ `initial`, z_{t+1} ~ `transition[z_t]`.

    Source: truncation paper, section 4 (pi_u and pi_b).
    """

    initial: Float[np.ndarray, "state"]
    transition: Float[np.ndarray, "state state"]

    @classmethod
    def from_counts(cls, counts: Int[np.ndarray, "state state"]) -> "MarkovChain":
        """The chain of bigram counts (row: first token); it starts from the unigrams, the row sums.

        A token never seen before another one is followed by the unigrams too.
        """
        first = counts.sum(axis=1)
        unigrams = first / first.sum()
        seen = np.where(first[:, None] > 0, counts, unigrams)
        return cls(unigrams, seen / seen.sum(axis=1, keepdims=True))

    @classmethod
    def uniform(cls, states: int) -> "MarkovChain":
        """Independent uniform tokens."""
        return cls(np.full(states, 1 / states), np.full((states, states), 1 / states))

    @property
    def states(self) -> int:
        """How many tokens there are."""
        return int(self.initial.shape[0])

    def with_state(self) -> "MarkovChain":
        """The chain with one more token, never drawn, which is followed by the unigrams."""
        widened = np.pad(self.transition, ((0, 1), (0, 1)))
        widened[-1, :-1] = self.initial
        return MarkovChain(np.pad(self.initial, (0, 1)), widened)

    @cached_property
    def initial_table(self) -> AliasTable:
        """The alias table of the first token."""
        return AliasTable.build(self.initial[None, :])

    @cached_property
    def transition_table(self) -> AliasTable:
        """The alias table of the next token."""
        return AliasTable.build(self.transition)

    def sample(self, generator: Generator, n: int, length: int) -> Int[np.ndarray, "batch position"]:
        """`n` sequences of the chain."""
        sequences = np.empty((n, length), dtype=np.int64)
        for start in range(0, n, _BLOCK):
            block = np.empty((length, min(_BLOCK, n - start)), dtype=np.int64)
            block[0] = self.initial_table.draw(generator, np.zeros(block.shape[1], dtype=np.int64))
            for position in range(1, length):
                block[position] = self.transition_table.draw(generator, block[position - 1])
            sequences[start : start + block.shape[1]] = block.T
        return sequences


def table_names() -> tuple[str, ...]:
    """The packaged bigram tables, by name."""
    suffix = "_bigrams.csv"
    files = (file.name for file in resources.files("anchorlab.tasks.tables").iterdir())
    return tuple(sorted(name.removesuffix(suffix) for name in files if name.endswith(suffix)))


@cache
def table_counts(name: str) -> Int[np.ndarray, "state state"]:
    """The bigram counts of a packaged table, row: first character.

    Errors: `SpecError` for an unknown table.
    """
    if name not in table_names():
        raise unknown_name("source", name, (*table_names(), "uniform"), "table")
    text = (resources.files("anchorlab.tasks.tables") / f"{name}_bigrams.csv").read_text()
    return np.array([[int(entry) for entry in line.split(",")] for line in text.splitlines()], dtype=np.int64)


@cache
def table_characters(name: str) -> tuple[str, ...]:
    """The characters of a packaged table, in the order of its rows."""
    if name not in table_names():
        raise unknown_name("source", name, (*table_names(), "uniform"), "table")
    text = (resources.files("anchorlab.tasks.tables") / f"{name}_characters.json").read_text()
    return tuple(json.loads(text))


@cache
def table_chain(name: str) -> MarkovChain:
    """The chain of a packaged table."""
    return MarkovChain.from_counts(table_counts(name))
