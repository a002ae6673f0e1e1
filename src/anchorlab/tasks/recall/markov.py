"""Markov chains over tokens, uniform or from tables of bigram counts."""

from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import sha256
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from anchorlab.errors import SpecError
from anchorlab.plain import parse_json, read_data
from anchorlab.spec import unknown_name
from anchorlab.tasks.alias import AliasTable

TABLE, CHARACTERS = "_bigrams.csv", "_characters.json"
"""The name endings of a table's two files."""

_MOST_BYTES = 2**26  # maximum size of a table's file; a table of 4000 characters takes half of this


@dataclass(frozen=True, eq=False)
class MarkovChain:
    """A chain z_1 ~ `initial`, z_{t+1} ~ `transition[z_t]`; `initial` and every row of `transition` sum to 1.

    Source: truncated weights, section 4 (pi_u and pi_b).
    """

    initial: Float[np.ndarray, "state"]
    transition: Float[np.ndarray, "state state"]

    @classmethod
    def from_counts(cls, counts: Int[np.ndarray, "state state"]) -> "MarkovChain":
        """Return the chain of bigram counts (row: first token); it starts from the unigram frequencies, the row sums.

        A token that never precedes another is also followed by a draw from these frequencies.
        """
        first = counts.sum(axis=1)
        unigrams = first / first.sum()
        seen = np.where(first[:, None] > 0, counts, unigrams)
        return cls(unigrams, seen / seen.sum(axis=1, keepdims=True))

    @classmethod
    def uniform(cls, states: int) -> "MarkovChain":
        """Return the chain of independent uniform tokens."""
        return cls(np.full(states, 1 / states), np.full((states, states), 1 / states))

    @property
    def states(self) -> int:
        """The number of tokens."""
        return int(self.initial.shape[0])

    def with_state(self) -> "MarkovChain":
        """Return the chain with an additional token, which is never drawn and is followed by a draw from `initial`."""
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


def table_names() -> tuple[str, ...]:
    """Return the names of the packaged bigram tables."""
    files = (file.name for file in _packaged().iterdir())
    return tuple(sorted(name.removesuffix(TABLE) for name in files if name.endswith(TABLE)))


def is_table_file(source: object) -> bool:
    """Return whether a source is the path of a table's file, not the name of a packaged table."""
    return isinstance(source, str) and source.endswith(TABLE)


def table_digest(source: str) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of a table's counts and characters.

    Errors: `SpecError` for an unknown table, or a missing file.
    """
    return sha256("\0".join(_texts(source)).encode()).hexdigest()[:16]


@cache
def table_counts(source: str, digest: str = "") -> Int[np.ndarray, "state state"]:
    """Return the bigram counts of a packaged table or a file (row: first character).

    `digest` has no effect on the result; it only separates different versions of a file in the cache.

    Errors: `SpecError` for an unknown table, a missing file, and a file without a square table of counts.
    """
    text = _texts(source)[0]
    try:
        counts = np.array([[int(entry) for entry in line.split(",")] for line in text.splitlines()], dtype=np.int64)
    except (ValueError, OverflowError):
        counts = np.zeros(0, dtype=np.int64)
    if counts.ndim != 2 or len(set(counts.shape)) != 1 or len(counts) < 2 or counts.min() < 0 or counts.sum() == 0:
        raise SpecError("source", f"{source} is not a square table of counts", "make it with `anchorlab table`")
    return counts


@cache
def table_characters(source: str, digest: str = "") -> tuple[str, ...]:
    """Return the characters of a table, in the order of its rows. Errors: as `table_counts`."""
    text = _texts(source)[1]
    try:
        characters = parse_json(text)
    except ValueError:
        characters = None
    if not isinstance(characters, list) or not all(isinstance(one, str) for one in characters):
        raise SpecError("source", f"{source} has no list of characters in its folder", "make it with `anchorlab table`")
    if len(characters) != len(table_counts(source, digest)):
        problem = f"{source} has different numbers of rows and characters"
        raise SpecError("source", problem, "make it again with `anchorlab table`")
    return tuple(characters)


@cache
def table_chain(source: str, digest: str = "") -> MarkovChain:
    """Return the Markov chain of a table. Errors: as `table_counts`."""
    return MarkovChain.from_counts(table_counts(source, digest))


def _packaged() -> Traversable:
    return resources.files("anchorlab.tasks.recall.tables")


def _texts(source: str) -> tuple[str, str]:
    """Return the texts of a table's two files: counts and characters."""
    if source in table_names():
        files = _packaged()
        return (files / f"{source}{TABLE}").read_text("utf-8"), (files / f"{source}{CHARACTERS}").read_text("utf-8")
    if not is_table_file(source):
        raise unknown_name("source", source, (*table_names(), "uniform"), "table")
    try:
        return _text(source), _text(source.removesuffix(TABLE) + CHARACTERS)
    except OSError as error:
        problem = error.strerror or "no such file"
    except ValueError:  # bytes that are not UTF-8, which are not shown; or a character that no path may hold
        problem = "it is no text"
    raise SpecError("source", f"{source} cannot be read: {problem}", "make it with `anchorlab table`")


def _text(path: str) -> str:
    """Return the text of a regular file; checked, because somebody else's run may name any path, even a device."""
    content = read_data(Path(path), _MOST_BYTES, follow=True)
    return content.decode().replace("\r\n", "\n")  # line endings do not change a table
