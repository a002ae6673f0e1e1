"""What the tests read out of the pages for people: code blocks, command lines, links."""

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
README = ROOT / "README.md"

_BLOCK = re.compile(
    r"^(?P<mark><!-- fragment -->\n+)?```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
_LINK = re.compile(r"\]\((?!https?:|mailto:|#)(?P<path>[^)#\s]+)(?:#[^)]*)?\)")
_INCLUDED = re.compile(r"^```\{(?:include|literalinclude)\} (?P<path>\S+)$", re.MULTILINE)


def pages() -> list[Path]:
    """Every page that people write; what is generated from code or runs is checked where it is made."""
    written = [path for path in DOCS.rglob("*.md") if path.relative_to(DOCS).parts[0] not in ("_build", "gallery")]
    return [
        README,
        ROOT / "CHANGELOG.md",
        ROOT / "CONTRIBUTING.md",
        *sorted(path for path in written if "generated" not in path.parts),
    ]


def name(path: Path) -> str:
    """A page's path as the tests show it."""
    return str(path.relative_to(ROOT))


def all_blocks(path: Path) -> list[tuple[str, str]]:
    """The language and text of every code block; one below `<!-- fragment -->` is not whole and is left out."""
    found = _BLOCK.finditer(path.read_text("utf-8"))
    return [(match["language"], match["text"]) for match in found if not match["mark"]]


def blocks(path: Path, language: str) -> list[str]:
    """The code blocks of a language."""
    return [text for one, text in all_blocks(path) if one == language]


def command_lines(path: Path, program: str) -> list[list[str]]:
    """The arguments of every line in a shell block that calls a program."""
    lines = [line for block in blocks(path, "bash") for line in block.splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.split()[:1] == [program]]


def local_links(path: Path) -> list[str]:
    """The local files that a page links to, shows or includes."""
    text = path.read_text("utf-8")
    return [match["path"] for pattern in (_LINK, _INCLUDED) for match in pattern.finditer(text)]
