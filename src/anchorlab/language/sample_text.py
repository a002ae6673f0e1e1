"""A page of English in the public domain that ships with the package: ordinary text, for perplexity and for heads."""

from dataclasses import dataclass
from importlib.resources import files


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
    content = (files("anchorlab.language.texts") / "alice.txt").read_text("utf-8")
    source, body = content.split("\n---\n")
    paragraphs = (" ".join(lines.split()) for lines in body.split("\n\n"))
    return Page(source, "\n\n".join(paragraphs))
