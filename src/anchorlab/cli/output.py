"""How commands speak: tables for people, JSON for scripts, progress while something runs."""

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from anchorlab.engine import Status

console = Console()

_PLAIN_EVERY = 10.0  # seconds between two lines of progress when nobody watches a terminal


def print_json(data: Any) -> None:
    """One JSON document on the standard output, and nothing else."""
    sys.stdout.write(json.dumps(data, indent=2) + "\n")


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], title: str | None = None) -> None:
    """A table for people."""
    table = Table(*columns, title=title, box=None, header_style="bold", title_justify="left", pad_edge=False)
    for row in rows:
        table.add_row(*(number(cell) for cell in row))
    console.print(table)


def number(cell: Any) -> str:
    """A cell as text: numbers with four digits."""
    if isinstance(cell, float):
        return f"{cell:.4g}"
    return "" if cell is None else str(cell)


@contextmanager
def progress(quiet: bool = False) -> Iterator[Callable[[Status], None]]:
    """A bar with the newest numbers and the time left; plain lines on the standard error when it is no terminal."""
    if quiet:
        yield lambda status: None
    elif not sys.stderr.isatty():
        yield _lines()
    else:
        with Progress(
            TextColumn("{task.fields[label]}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[numbers]}"),
            console=Console(stderr=True),
        ) as bar:
            line = bar.add_task("", label="starting", numbers="", total=None)

            def show(status: Status) -> None:
                bar.update(line, total=status.total, completed=status.done, label=status.label, numbers=_numbers(status))

            yield show


def _numbers(status: Status) -> str:
    return "  ".join(f"{name} {value:.3g}" for name, value in status.metrics.items() if "loss" not in name)


def _lines() -> Callable[[Status], None]:
    began = time.monotonic()
    last = began

    def show(status: Status) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < _PLAIN_EVERY or not status.done:
            return
        last = now
        left = (now - began) * (status.total - status.done) / status.done
        share = status.done / status.total
        print(f"{status.label}: {share:.0%}, {left:.0f} s left  {_numbers(status)}", file=sys.stderr, flush=True)

    return show
