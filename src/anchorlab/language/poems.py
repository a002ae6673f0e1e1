"""Poems in the public domain, to be recited line by line."""

from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True)
class Poem:
    """Successive lines of a poem, with its title, author and year."""

    title: str
    author: str
    year: int
    lines: tuple[str, ...]


def poems() -> tuple[Poem, ...]:
    """Return eight successive lines, all different, of each of 20 English poems published before 1928."""
    found = []
    for block in (files("anchorlab.language.texts") / "poems.txt").read_text("utf-8").split("\n\n"):
        head, *lines = block.strip().split("\n")
        title, author, year = head.split(" | ")
        found.append(Poem(title, author, int(year), tuple(lines)))
    return tuple(found)
