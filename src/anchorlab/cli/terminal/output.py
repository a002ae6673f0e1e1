"""The output of commands: text and tables for people, JSON for scripts, a note during long work."""

import json as json_module
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from anchorlab.cli.terminal.columns import GAP, lay_out
from anchorlab.errors import SpecError
from anchorlab.printable import printable
from anchorlab.progress import FIRST

if TYPE_CHECKING:
    import polars


def print_json(data: Any) -> None:
    """Print one JSON document and nothing else; numbers that are not finite become null."""
    sys.stdout.write(json_module.dumps(_finite(data), indent=2, allow_nan=False) + "\n")


class Rows(NamedTuple):
    """A table to print, as `print_table` takes it."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    title: str | None = None

    def data(self) -> list[dict[str, Any]]:
        """Return an object for each row."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def hand_out(json: bool, data: Callable[[], Any], shown: Iterable[RenderableType | Rows], **files: Path | None) -> None:
    """Print what a command has found: for scripts one JSON document, for people texts and tables, then its files.

    Args:
        json: whether to print JSON
        data: makes the JSON document
        shown: the texts and tables in order, made only where they are printed
        files: the files written, by name with underscores, such as `attention_viewer`; None for one not written
    """
    if json:
        print_json(data())
        return
    for one in shown:
        if isinstance(one, Rows):
            print_table(*one)
        else:
            print_text(one)
    for name, file in files.items():
        if file is not None:
            print_text(f"{name.replace('_', ' ')}: {file}", wrapped=False)


def print_text(text: RenderableType, *, wrapped: bool = True) -> None:
    """Print text for people literally: brackets and colons are not markup, and control characters are escaped.

    Set `wrapped` to False for text with a path, which a line break would spoil.
    """
    if isinstance(text, str | Text):
        text = _seen(text)
    Console().print(text, soft_wrap=not wrapped, markup=False, highlight=False)


def _seen(text: str | Text) -> Text:
    """Return text with control characters escaped; if there are any, the styles of its parts are lost."""
    if isinstance(text, str):
        return Text(printable(text, lines=True))
    plain = printable(text.plain, lines=True)
    return text if plain == text.plain else Text(plain, text.style, no_wrap=text.no_wrap)


def print_problem(text: str) -> None:
    """Print a problem in one line on standard error."""
    print(f"anchorlab: {printable(' '.join(text.split()))}", file=sys.stderr)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], title: str | None = None) -> None:
    """Print a table for people, with numbers aligned to the right; without a header if all column names are empty.

    Columns that do not fit on the terminal without breaking words are printed below, with the first column repeated.
    """
    if title is not None:
        print_text(Text(printable(title, lines=True), "bold"))
    columns = [printable(column, lines=True) for column in columns]
    cells = [[_seen(cell) if isinstance(cell, Text) else Text(number(cell)) for cell in row] for row in rows]
    texts = [[column, *(_whole(row[index]) for row in cells)] for index, column in enumerate(columns)]
    for place, (part, widths) in enumerate(lay_out(texts, Console().width)):
        table = Table(box=None, header_style="bold", padding=(0, GAP, 0, 0), pad_edge=False, show_header=any(columns))
        for index, width in zip(part, widths, strict=True):
            numeric = all(isinstance(row[index], int | float) for row in rows)
            table.add_column(columns[index], justify="right" if numeric else "left", overflow="fold", width=width)
        for row in cells:
            table.add_row(*(row[index] for index in part))
        if place:
            print_text("")
        print_text(table)


def _whole(cell: Text) -> str:
    """Return a cell's text, as one word if it may not be wrapped."""
    return cell.plain.replace(" ", "\xa0") if cell.no_wrap else cell.plain


def print_metrics(last: "polars.DataFrame", title: str) -> None:
    """Print the table of `last_metrics`; the columns `group` and `edit` are left out if all values are the default."""
    default = {"group": "all", "edit": "none"}
    shown = last.drop([name for name, value in default.items() if set(last[name]) == {value}])
    print_table(shown.columns, shown.rows(), title=title)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 member`, `2 members`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def size_text(size: int) -> str:
    """Return a number of bytes as text: `7.7 kB`, `1.2 GB`."""
    for unit, least in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= least:
            return f"{size / least:.3g} {unit}"
    return f"{size} bytes"


def number(cell: Any) -> str:
    """Return a cell as text: floats with four significant digits, None as nothing, control characters escaped."""
    if isinstance(cell, float):
        return f"{cell:.4g}"
    return "" if cell is None else printable(str(cell), lines=True)


def check_file(path: Path | None, field: str) -> None:
    """Check, before any work is done, that a page or figure can be written to `path`.

    Errors: `SpecError` at `field` if it cannot, or if its folder does not exist, which may be a typing error.
    """
    if path is None:
        return
    folder = path.absolute().parent
    if not folder.exists():
        raise SpecError(field, f"there is no folder {folder}", "make it first, or name another file")
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise SpecError(field, f"{path} cannot be written", "name a file in a folder that you can write to")
    if field == "figure" and path.suffix.lower() not in (".svg", ".png", ".pdf"):
        raise SpecError(field, f"cannot write {path.name!r}", "end the name with .svg, .png or .pdf")


@contextmanager
def waiting(label: str, quiet: bool = False) -> Iterator[None]:
    """Show `label` if the work inside takes more than two seconds; on a terminal, with the elapsed time."""
    label = printable(label)
    spinner = None
    if sys.stderr.isatty() and not quiet:
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
        spinner = Progress(*columns, console=Console(stderr=True), transient=True)
        spinner.add_task(label, total=None)

    def begin() -> None:
        if spinner is not None:
            spinner.start()
        elif not quiet:
            print(label, file=sys.stderr, flush=True)

    timer = Timer(FIRST, begin)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        if spinner is not None:
            spinner.stop()


def _finite(data: Any) -> Any:
    """Return the data with None in place of numbers that are not finite, which JSON does not have."""
    if isinstance(data, Mapping):
        return {name: _finite(value) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not -float("inf") < data < float("inf") else data
