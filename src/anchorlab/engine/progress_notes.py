"""Progress of chunks between processes: a worker writes notes into the run's folder, and the driver reads them."""

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from anchorlab.plain import parse_json, read_data
from anchorlab.runs import ChunkDirectory
from anchorlab.training import Progress

PAUSE = 0.5  # seconds between two looks at the notes
_EVERY = 0.5  # seconds between two notes


class Noting:
    """Writes a chunk's progress to its note about twice a second, and messages for the user at once."""

    def __init__(self, chunk: ChunkDirectory) -> None:
        self.path, self._due = _path(chunk), 0.0
        self._said: list[str] = []

    def __call__(self, progress: Progress) -> None:
        """Write the progress if a note is due or it carries a message; a note that cannot be written is left out."""
        now = time.monotonic()
        if now < self._due and not progress.note:
            return
        self._due = now + _EVERY
        self._said += [progress.note] if progress.note else []
        found = [progress.step, progress.steps, dict(progress.metrics), self._said]
        temporary = self.path.with_suffix(f".{os.getpid()}")
        with suppress(OSError):
            self.path.parent.mkdir(exist_ok=True)
            temporary.write_text(json.dumps(found))
            temporary.replace(self.path)


class News:
    """Reads the notes of chunks, and returns only what has changed."""

    def __init__(self) -> None:
        self._known: dict[Path, Progress] = {}
        self._heard: Counter[Path] = Counter()

    def of(self, chunk: ChunkDirectory) -> Iterator[Progress]:
        """Yield the messages from a chunk since the last call, and then its progress if it has changed."""
        path = _path(chunk)
        try:
            found = parse_json(read_data(path))
        except (OSError, ValueError):  # not there yet, or no longer
            return
        match found:
            case [int(step), int(steps), dict(metrics), list(said)] if _plain(metrics, said):
                if len(said) < self._heard[path]:  # another attempt
                    self._heard[path] = 0
                yield from (Progress(step, steps, note=text) for text in said[self._heard[path] :])
                self._heard[path] = len(said)
                progress = Progress(step, steps, metrics)
                if progress != self._known.get(path):
                    self._known[path] = progress
                    yield progress


def forget(chunk: ChunkDirectory) -> None:
    """Remove the note of an earlier training, so that it is not taken for news."""
    with suppress(OSError):
        _path(chunk).unlink(missing_ok=True)


def _plain(metrics: dict[str, Any], said: list[Any]) -> bool:
    return all(isinstance(one, int | float) for one in metrics.values()) and all(isinstance(one, str) for one in said)


def _path(chunk: ChunkDirectory) -> Path:
    return chunk.path.parent / "notes" / f"{chunk.path.name}.json"
