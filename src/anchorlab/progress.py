"""Show the progress of long work: a bar on a terminal, a line in a notebook, plain lines elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from html import escape
from typing import Any

from anchorlab.printable import printable

FIRST, NEXT = 2.0, 10.0
"""Seconds before progress is first shown, and between two plain lines."""

_SEEN = 1.0  # seconds of work before the remaining time can be estimated
_REDRAWN = 0.5  # seconds between two updates of a notebook's line

_showing: ContextVar[bool] = ContextVar("_showing", default=False)


@dataclass
class Status:
    """The progress of some work.

    Fields
        total: the amount of work; for training, the floating-point operations of all experiments
        done: the amount done so far
        label: what is being done
        cells: the number of experiments
        cells_done: the number of finished experiments
        before: the part of `done` that was resumed from kept states, not computed now
        metrics: the newest metrics
        note: a message for the user, such as that something starts over; empty again in the next report
    """

    total: int
    done: int = 0
    label: str = ""
    cells: int = 0
    cells_done: int = 0
    before: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    note: str = ""


Report = Callable[[Status], None]
"""A function that is called with the status a few times per second."""

Counted = Callable[[int, int], None] | bool | None
"""Where to report counted work: a function called with (done, total), or the `progress` argument of `shown`."""

Phased = Callable[[str, int, int], None] | bool | None
"""Where to report work in phases: a function called with (phase, done, total), or the `progress` of `shown`."""


@contextmanager
def shown(progress: bool | None = None) -> Iterator[Report]:
    """Yield a function that shows a status: label, share done, time left, newest metrics.

    Nothing is shown in the first two seconds. Nested calls show nothing: the outer progress already counts their work.

    Args:
        progress: True shows it everywhere, as plain lines on standard error if there is neither a terminal nor a
            notebook; None shows it in a terminal or a notebook only; False shows nothing.
    """
    noting = progress is not False and not _showing.get()
    show, close = _display(progress)
    before = _showing.set(True)
    try:
        yield lambda status: print(printable(status.note), file=sys.stderr) if noting and status.note else show(status)
    finally:
        _showing.reset(before)
        close()


@contextmanager
def reported(report: Report | None, progress: bool | None = None) -> Iterator[Report]:
    """Yield `report` if given, else the function of `shown(progress)`; nested progress stays silent either way."""
    if report is None:
        with shown(progress) as show:
            yield show
        return
    before = _showing.set(True)
    try:
        yield report
    finally:
        _showing.reset(before)


@contextmanager
def counted(label: str, progress: Counted) -> Iterator[Callable[[int, int], None]]:
    """Yield a function to call with (done, total): it calls `progress`, or shows the progress under `label`."""
    as_phase = (lambda _, done, total: progress(done, total)) if callable(progress) else progress
    with phased(as_phase) as tell:
        yield lambda done, total: tell(label, done, total)


@contextmanager
def phased(progress: Phased) -> Iterator[Callable[[str, int, int], None]]:
    """Yield a function to call with (phase, done, total): it calls `progress`, or shows the phase."""
    report = (lambda status: progress(status.label, status.done, status.total)) if callable(progress) else None
    with reported(report, None if callable(progress) else progress) as show:
        yield lambda phase, done, total: show(Status(total, done, phase))


def _display(progress: bool | None) -> tuple[Report, Callable[[], None]]:
    """Return two functions: one shows a status in this environment, the other ends the display."""
    if progress is False or _showing.get():
        return lambda status: None, lambda: None
    if (notebook := _notebook()) is not None:
        line = _NotebookLine(notebook)
        return line.show, line.close
    if sys.stderr.isatty():
        bar = _Bar()
        return bar.show, bar.close
    return (_Lines().show if progress else lambda status: None), lambda: None


def _notebook() -> Any:
    """Return the display function of the running notebook; None elsewhere, such as at IPython's terminal prompt."""
    ipython: Any = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return ipython.display.display if getattr(shell, "kernel", None) is not None else None


class _Bar:
    """A bar on a terminal."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
        from rich.table import Column

        one_line = Column(no_wrap=True, overflow="ellipsis", max_width=26)
        self.bar = Progress(
            TextColumn("{task.fields[label]}", markup=False, table_column=one_line),
            BarColumn(bar_width=14),
            TaskProgressColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[numbers]}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis")),
            console=Console(stderr=True),
        )
        self.line = self.bar.add_task("", label="", numbers="", total=None)
        self.begins = time.monotonic() + FIRST

    def show(self, status: Status) -> None:
        """Show the status, unless the work may end soon."""
        if not self.bar.live.is_started and time.monotonic() < self.begins:
            return
        self.bar.start()
        self.bar.update(
            self.line,
            total=status.total if status.done else None,
            completed=status.done,
            label=printable(status.label),
            numbers=newest(status.metrics),
        )

    def close(self) -> None:
        """Stop updating the bar; it stays on the screen."""
        self.bar.stop()


class _Left:
    """Estimate the remaining time from the pace since the first progress."""

    def __init__(self) -> None:
        # the pace is measured from the first progress: start-up, such as of processes, would bias the estimate
        self.began, self.first, self.last, self.total = 0.0, 0, 0, 0

    def seconds(self, status: Status, now: float) -> float | None:
        """Return the estimated seconds left; None until there is enough progress to estimate from."""
        done = status.done - status.before
        if not status.done:
            return None
        if not self.began or status.total != self.total or done < self.last:  # first progress, or a new phase
            self.began, self.first, self.total = now, done, status.total
        self.last = done
        if now < self.began + _SEEN or done <= self.first:
            return None
        return (now - self.began) * (status.total - status.done) / (done - self.first)


class _Lines:
    """Plain lines on the standard error."""

    def __init__(self) -> None:
        self.left, self.due = _Left(), time.monotonic() + FIRST
        self.begins, self.label = self.due, ""

    def show(self, status: Status) -> None:
        """Print the status if a line is due; a new phase without progress yet prints its label at once."""
        now = time.monotonic()
        left = self.left.seconds(status, now)
        if not status.done:
            if now >= self.begins and status.label != self.label:
                print(printable(status.label), file=sys.stderr, flush=True)
        elif left is not None and now >= self.due:
            self.due = now + NEXT
            print(_text(status, left), file=sys.stderr, flush=True)
        else:
            return
        self.label = status.label


class _NotebookLine:
    """One line in a notebook cell's output, redrawn in place."""

    def __init__(self, display: Any) -> None:
        self.display, self.left, self.began = display, _Left(), time.monotonic()
        self.due = self.began + FIRST
        self.handle: Any = None
        self.last: Status | None = None

    def show(self, status: Status) -> None:
        """Show the status, if the work has taken long enough."""
        now = time.monotonic()
        left = self.left.seconds(status, now)
        self.last = status
        if now >= self.due:
            self.due = now + _REDRAWN
            self._draw(_text(status, left), status)

    def close(self) -> None:
        """Replace the line by a last one with the total time, if anything was shown."""
        if self.handle is not None and self.last is not None:
            took = f"{time.monotonic() - self.began:.0f} s"
            share = f"{self.last.label}: {self.last.done / max(self.last.total, 1):.0%} in {took}"
            self._draw(_joined(share, newest(self.last.metrics)), self.last)

    def _draw(self, text: str, status: Status) -> None:
        bar = f'<progress value="{status.done}" max="{max(status.total, 1)}" style="width: 8rem"></progress>'
        page = f'<div style="font: 13px/1.6 system-ui, sans-serif">{bar} {escape(text)}</div>'
        shown = {"text/html": page, "text/plain": text}
        if self.handle is None:
            self.handle = self.display(shown, raw=True, display_id=True)
        else:
            self.handle.update(shown, raw=True)


def newest(metrics: Mapping[str, float]) -> str:
    """Return the accuracy on each split, or the loss if the task has no accuracy."""
    for wanted in ("accuracy", "loss"):
        found = [
            f"{key.removesuffix(f' {wanted}')} {value:.3g}"  # a split's name may have several words
            for key, value in reversed(list(metrics.items()))
            if key.endswith(f" {wanted}")
        ]
        if found:
            return printable(" ".join([wanted, *found]))
    return ""


def _text(status: Status, left: float | None) -> str:
    share = f"{printable(status.label)}: {status.done / max(status.total, 1):.0%}"
    return _joined(share, "" if left is None else f"{left:.0f} s left", newest(status.metrics))


def _joined(*parts: str) -> str:
    return ", ".join(filter(None, parts))
