"""Lay out the columns of a printed table: no word that fits is broken, and columns that do not fit go below."""

import re
from collections.abc import Iterator, Sequence

from rich.cells import cell_len

GAP = 2
"""The blanks between two columns."""


def lay_out(table: Sequence[Sequence[str]], room: int) -> Iterator[tuple[list[int], list[int]]]:
    """Yield the columns of each part of a table, by index, and their widths.

    A column is at least as wide as its longest word, the first column as its longest line. Columns that do not fit side
    by side follow below in further parts, each beginning with the first column. A single column wider than `room` is
    cut.

    Args:
        table: columns, each with its cells from top to bottom, the header first
        room: the width of the terminal
    """
    least = [_longest(cells, words=index > 0 or len(table) < 3) for index, cells in enumerate(table)]
    wanted = [_longest(cells, words=False) for cells in table]
    part = [0]
    for index in range(1, len(table)):
        if len(part) > 1 and _width([least[one] for one in (*part, index)]) > room:
            yield part, _widths([least[one] for one in part], [wanted[one] for one in part], room)
            part = [0]
        part.append(index)
    yield part, _widths([least[one] for one in part], [wanted[one] for one in part], room)


def _longest(cells: Sequence[str], words: bool) -> int:
    pieces = (piece for cell in cells for piece in (re.split("[ \n]", cell) if words else cell.splitlines()))
    return max(map(cell_len, pieces), default=1)


def _width(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _widths(least: Sequence[int], wanted: Sequence[int], room: int) -> list[int]:
    """Return widths that fit `room`: `least`, widened towards `wanted`, the neediest column first, or else narrowed."""
    widths = list(least)
    while _width(widths) < room and any(width < most for width, most in zip(widths, wanted, strict=True)):
        needs = [most - width for width, most in zip(widths, wanted, strict=True)]
        widths[needs.index(max(needs))] += 1
    while _width(widths) > room and max(widths) > 1:
        widths[widths.index(max(widths))] -= 1
    return widths
