"""Docstrings are written for people who read code: plain text with `code`, tables and drawn examples.

This turns them into reStructuredText: code spans double their backticks, tables become list tables, indented examples
become literal blocks, and every other character means itself.
"""

import re

from sphinx.application import Sphinx

_CODE = re.compile(r"(`[^`]+`)")
_SPECIAL = re.compile(r"([\\*|_`])")


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", convert)
    return {"parallel_read_safe": True}


def convert(app: Sphinx, what: str, name: str, value: object, options: object, lines: list[str]) -> None:
    """Replaces the lines of a docstring in place."""
    lines[:] = to_rst(lines)


def to_rst(lines: list[str]) -> list[str]:
    """A docstring's lines as reStructuredText."""
    result: list[str] = []
    block: list[str] = []
    for line in [*lines, ""]:
        if line.strip():
            block.append(line.rstrip())
        elif block:
            result += [*_block(block), ""]
            block = []
    return result


def _block(block: list[str]) -> list[str]:
    if block[0].lstrip().startswith(">>>"):
        return block
    if all(line.startswith("|") for line in block):
        return _table(block)
    if all(line.startswith("    ") for line in block):
        return ["::", "", *block]
    if any(line.startswith("    ") for line in block):  # names with explanations: every line keeps its place
        return [f"| {_indent(line)}{_inline(line.strip())}" for line in block]
    return _paragraph(block)


def _paragraph(block: list[str]) -> list[str]:
    result: list[str] = []
    for line in block:
        text = _inline(line)
        label = re.match(r"(Errors|Source|Shapes)\b[^:]*:", text)
        if label:
            result += ["", f"**{label[0]}**{text[label.end() :]}"]
        else:
            result.append(text)
    return result


def _table(block: list[str]) -> list[str]:
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in block]
    rows = [row for row in rows if not all(set(cell) <= {"-", ":"} and cell for cell in row)]
    result = [".. list-table::", "   :header-rows: 1", ""]
    for row in rows:
        result += [f"   {'* -' if index == 0 else '  -'} {_inline(cell)}" for index, cell in enumerate(row)]
    return result


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _inline(text: str) -> str:
    parts = _CODE.split(text)
    return "".join(f"`{part}`" if _CODE.fullmatch(part) else _SPECIAL.sub(r"\\\1", part) for part in parts)
