"""Words for retrieval prompts: shipped lists, and generated names for kinds that need arbitrarily many."""

import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from itertools import islice, product
from string import ascii_lowercase
from typing import Any

from anchorlab.errors import SpecError

_ENDINGS = {"kingdoms": "{}{}via", "beliefs": "{}{}rian", "minerals": "{}{}nite", "illnesses": "{}{}mia"}


@cache
def lists() -> dict[str, Any]:
    """Return the shipped lists by name; see `words.toml`."""
    return tomllib.loads((files(__package__) / "words.toml").read_text("utf-8"))


def words(name: str, n: int, field: str = "chains") -> tuple[str, ...]:
    """Return the first `n` words of a list: a shipped one, `variables`, or a fictional kind.

    `variables` are a to z, then pairs of letters. For kingdoms, beliefs, minerals and illnesses, the paper's four words
    come first, then stems with the ending of their kind, so that no two kinds share a word.

    Errors: `SpecError` that names `field` if the list has fewer words.
    """
    found = tuple(islice(_all(name), n))
    if len(found) < n:
        raise SpecError(field, f"{n} {name} are needed, but the list has {len(found)}", "ask for fewer chains or steps")
    return found


def blocks(name: str, size: int, count: int) -> tuple[tuple[str, ...], ...]:
    """Return the first words of a list in `count` blocks of `size`, such as a to d, e to h, i to l.

    Errors: `SpecError` that names `steps` if the list has fewer words.
    """
    found = words(name, size * count, "steps")
    return tuple(found[start : start + size] for start in range(0, size * count, size))


def _all(name: str) -> Iterator[str]:
    if name == "variables":
        yield from ascii_lowercase
        refused = set(lists()["short_words"])
        yield from (a + b for a, b in product(ascii_lowercase, repeat=2) if a + b not in refused)
        return
    yield from lists()[name]
    if name in _ENDINGS:
        for vowel, stem in product("aeiou", lists()["stems"]):
            made = _ENDINGS[name].format(stem, vowel)
            yield made.lower() if name == "beliefs" else made
