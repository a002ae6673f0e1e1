"""Progress between processes: a worker writes notes beside its chunks, and the driver reads them."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from anchorlab.plain import parse_json, read_data
from anchorlab.training import Progress

_EVERY = 0.5  # seconds between two notes


class Note:
    """The file with the progress of a chunk, and with all messages for the user."""

    def __init__(self, run: Path, index: int) -> None:
        self.path = run / "state" / "notes" / f"chunk-{index:04d}.json"
        self._due = 0.0
        self._said: list[str] = []
        self._known: Progress | None = None

    def write(self, progress: Progress) -> None:
        """Write the progress about twice a second, and messages at once; what cannot be written is left out."""
        now = time.monotonic()
        if now < self._due and not progress.note:
            return
        self._due = now + _EVERY
        self._said += [progress.note] if progress.note else []
        temporary = self.path.with_suffix(f".{os.getpid()}")
        with suppress(OSError):
            self.path.parent.mkdir(exist_ok=True)
            temporary.write_text(json.dumps([progress.step, progress.steps, dict(progress.metrics), self._said]))
            temporary.replace(self.path)

    def news(self) -> Iterator[Progress]:
        """Yield the messages since the last call, and then the progress if it has changed."""
        try:
            step, steps, metrics, said = parse_json(read_data(self.path))
            progress = Progress(int(step), int(steps), {name: float(value) for name, value in metrics.items()})
        except (OSError, ValueError, TypeError, AttributeError):  # not there yet, or no longer
            return
        new = said[len(self._said) :] if said[: len(self._said)] == self._said else said  # of another attempt
        self._said = said
        yield from (Progress(progress.step, progress.steps, note=str(text)) for text in new)
        if progress != self._known:
            self._known = progress
            yield progress

    def forget(self) -> None:
        """Remove the note of an earlier training, so that it is not taken for news."""
        with suppress(OSError):
            self.path.unlink(missing_ok=True)
