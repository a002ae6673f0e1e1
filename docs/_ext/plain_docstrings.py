"""Turn docstrings, which are plain text with `code`, tables and drawn examples, into reStructuredText.

Code spans get double backticks, tables become list tables, `Args:` becomes a list, indented examples become literal
blocks, and every other character means itself. Signatures lose the validators of their types.
"""

import re

from sphinx.application import Sphinx

_CODE = re.compile(r"(`[^`]+`)")
_SPECIAL = re.compile(r"([\\*|_`])")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the conversions; Sphinx calls this."""
    app.connect("autodoc-process-docstring", convert)
    app.connect("autodoc-process-signature", simplify)
    return {"parallel_read_safe": True}


def convert(app: Sphinx, what: str, name: str, value: object, options: object, lines: list[str]) -> None:
    """Replace the lines of a docstring in place."""
    lines[:] = to_rst(lines)


def to_rst(lines: list[str]) -> list[str]:
    """Return a docstring's lines as reStructuredText."""
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
    if block[0] == "Args:":
        return _arguments(block[1:])
    if any(line.startswith("    ") for line in block):
        return _explained(block)
    return _paragraph(block)


def _arguments(lines: list[str]) -> list[str]:
    """Return a list of `name: explanation` lines; a line that is indented further continues the one above."""
    items: list[str] = []
    for line in lines:
        if line.startswith("        "):
            items[-1] += f" {line.strip()}"
        else:
            items.append(line.strip())
    pairs = (item.partition(": ") for item in items)
    return ["**Args:**", "", *(f"- ``{name}``: {_inline(text)}" for name, _, text in pairs)]


def _explained(block: list[str]) -> list[str]:
    """Return names with explanations: one per line below a heading such as `Shapes`, else with continued lines."""
    lines: list[str] = []
    for line in block:
        if line.startswith("    ") and ":" in block[0]:
            lines[-1] += f" {line.strip()}"
        else:
            lines.append(line)
    return [f"| {_indent(line)}{_inline(line.strip())}" for line in lines]


def _paragraph(block: list[str]) -> list[str]:
    result: list[str] = []
    for line in block:
        text = _inline(line)
        label = re.match(r"(Errors|Returns|Source|Shapes)\b[^:]*:", text)
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


def simplify(
    app: Sphinx, what: str, name: str, value: object, options: object, signature: str | None, returns: str | None
) -> tuple[str | None, str | None] | None:
    """Show `Annotated[int, Ge(ge=1)]` as `int`, and a default made by a factory as `...`."""
    if signature is None:
        return None
    return without_annotations(signature).replace("<factory>", "..."), returns


def without_annotations(text: str) -> str:
    """Return the text with every `Annotated[type, ...]` replaced by its type."""
    start = text.rfind("Annotated[")
    while start >= 0:
        depth, comma = 0, None
        for at in range(start + len("Annotated"), len(text)):
            depth += (text[at] in "[(") - (text[at] in "])")
            if text[at] == "," and depth == 1 and comma is None:
                comma = at
            if depth == 0:
                break
        text = text[:start] + text[start + len("Annotated[") : comma] + text[at + 1 :]
        start = text.rfind("Annotated[")
    return text
