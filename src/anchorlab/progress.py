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

_PACE = 600.0  # seconds over which the pace is measured
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
    display = _display(progress)

    def report(status: Status) -> None:
        if noting and status.note:
            print(printable(status.note), file=sys.stderr)
        elif display is not None:
            display.show(status)

    before = _showing.set(True)
    try:
        yield report
    finally:
        _showing.reset(before)
        if display is not None:
            display.close()


@contextmanager
def reported(report: Report | None, progress: bool | None = None) -> Iterator[Report]:
    """Yield `report` if given, else the function of `shown(progress)`; nested progress stays silent either way."""
    with shown(progress if report is None else False) as show:
        yield show if report is None else report


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


def _display(progress: bool | None) -> "_Bar | None":
    """Return what shows a status in this environment, or None."""
    if progress is False or _showing.get():
        return None
    ipython: Any = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if getattr(shell, "kernel", None) is not None:  # a notebook, not IPython's prompt on a terminal
        return _NotebookLine(ipython.display.display)
    if sys.stderr.isatty():
        return _Bar()
    return _Lines() if progress else None


class _Bar:
    """A bar on a terminal. Rich estimates the time left, from the pace since the first progress."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
        from rich.table import Column

        self.bar = Progress(
            TextColumn("{task.fields[label]}", markup=False, table_column=Column(no_wrap=True, max_width=26)),
            BarColumn(bar_width=14),
            TaskProgressColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[numbers]}", markup=False, table_column=Column(no_wrap=True)),
            console=Console(stderr=True),
            get_time=time.monotonic,
            speed_estimate_period=_PACE,
        )
        self.task = self.bar.add_task("", label="", numbers="", total=None)
        self.began, self.due = time.monotonic(), 0.0
        self.last: Status | None = None

    def show(self, status: Status) -> None:
        """Show the status, unless the work may end soon."""
        last, self.last = self.last, status
        if last is None or (status.total, status.before) != (last.total, last.before) or status.done < last.done:
            self.bar.reset(self.task, total=status.total)  # another phase, or a part that was resumed: the pace is new
        label, numbers = printable(status.label), newest(status.metrics)
        self.bar.update(self.task, completed=status.done, label=label, numbers=numbers)
        if (now := time.monotonic()) >= self.began + FIRST:
            self._draw(status, now)

    def _draw(self, status: Status, now: float) -> None:
        self.bar.start()

    def close(self) -> None:
        """Stop updating the bar; it stays on the screen."""
        if self.bar.live.is_started:
            self.bar.stop()


class _Lines(_Bar):
    """Plain lines on standard error; a phase that has no progress yet is shown by its label."""

    every, label = NEXT, ""

    def _draw(self, status: Status, now: float) -> None:
        left = self.bar.tasks[0].time_remaining
        if not status.done and status.label != self.label:
            self._write(printable(status.label), status)
        elif status.done and left is not None and now >= self.due:
            self.due = now + self.every
            share = f"{printable(status.label)}: {status.done / max(status.total, 1):.0%}"
            self._write(", ".join(filter(None, (share, f"{left:.0f} s left", newest(status.metrics)))), status)
        else:
            return
        self.label = status.label

    def _write(self, text: str, status: Status) -> None:
        print(text, file=sys.stderr, flush=True)


class _NotebookLine(_Lines):
    """One line in a notebook cell's output, redrawn in place."""

    every = _REDRAWN

    def __init__(self, display: Any) -> None:
        super().__init__()
        self.display, self.handle = display, None

    def close(self) -> None:
        """Replace the line by a last one with the total time, if anything was shown."""
        if self.handle is not None and (last := self.last) is not None:
            share = f"{printable(last.label)}: {last.done / max(last.total, 1):.0%}"
            took = f"{share} in {time.monotonic() - self.began:.0f} s"
            self._write(", ".join(filter(None, (took, newest(last.metrics)))), last)

    def _write(self, text: str, status: Status) -> None:
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
