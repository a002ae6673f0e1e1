"""Noise that follows a fixed Markov chain, like the words of a text."""

from functools import lru_cache

import numpy as np
from jaxtyping import UInt16
from numpy.random import Generator
from pydantic import Field

from anchorlab.errors import SpecError
from anchorlab.rng import generator
from anchorlab.spec import Spec
from anchorlab.tasks.anchor.vocabulary import Vocabulary


class MarkovNoise(Spec):
    """A chain in which every item has a few successors, all equally likely.

    successors: the number of items that may follow an item
    chain: the number of the chain, which seeds its random order

    The items form a ring in a random order that `chain` fixes. The successors of an item are the next items on the
    ring. So at each position every item is as frequent as under independent noise. Anchors and keys overwrite the chain
    without interrupting it: noise depends on the noise before it, and tells nothing about a key.

    The entropy of a noise token given the chain's previous token is log(successors) nats.
    """

    successors: int = Field(4, ge=1)
    chain: int = Field(0, ge=0)

    def check(self, vocabulary: Vocabulary) -> None:
        """Raise `SpecError` for more successors than items."""
        if self.successors > vocabulary.item_count:
            problem = f"{self.successors} are more than the {vocabulary.item_count} items"
            raise SpecError("successors", problem, "give fewer")

    def draw(
        self, random: Generator, rows: int, length: int, items: tuple[int, int]
    ) -> UInt16[np.ndarray, "row position"]:
        """Return sequences of the chain; the first token is any item from the first to the last of `items`."""
        ring = _ring(self.chain, *items)
        steps = random.integers(1, self.successors + 1, size=(rows, length))
        steps[:, 0] = random.integers(len(ring), size=rows)
        return np.asarray(ring[steps.cumsum(axis=1) % len(ring)])


@lru_cache(maxsize=16)
def _ring(chain: int, first: int, last: int) -> UInt16[np.ndarray, "item"]:
    return generator(chain, "noise chain").permutation(np.arange(first, last + 1, dtype=np.uint16))
