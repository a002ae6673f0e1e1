"""Texts in the public domain that ship with the package: a page of English prose, and poems to recite."""

from dataclasses import dataclass
from importlib.resources import files


def read_text(name: str) -> str:
    """Return the content of a file of `anchorlab.language.texts`."""
    return (files("anchorlab.language.texts") / name).read_text("utf-8")


@dataclass(frozen=True)
class Page:
    """A passage of prose.

    Fields
        source: author, title, year and part
        text: its paragraphs, each on one line, with an empty line between two
    """

    source: str
    text: str


def english_page() -> Page:
    """Return the first chapter of *Alice's Adventures in Wonderland* (Lewis Carroll, 1865), about 2100 words."""
    source, body = read_text("alice.txt").split("\n---\n")
    paragraphs = (" ".join(lines.split()) for lines in body.split("\n\n"))
    return Page(source, "\n\n".join(paragraphs))


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
    for block in read_text("poems.txt").split("\n\n"):
        head, *lines = block.strip().split("\n")
        title, author, year = head.split(" | ")
        found.append(Poem(title, author, int(year), tuple(lines)))
    return tuple(found)
