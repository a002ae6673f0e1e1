"""Notes beside the chunks of a run, by which a process that trains tells the one that asked how far it is."""

import json
import os
import time
from contextlib import suppress
from pathlib import Path

from anchorlab.plain import parse_json, read_data
from anchorlab.runs import ChunkDirectory
from anchorlab.training import Progress

PAUSE = 0.5  # seconds between two looks at the notes
_EVERY = 0.5  # seconds between two notes
_SHOWN = 2 * PAUSE  # seconds for which a message for the user stays, so that it is read


class Noting:
    """Writes a chunk's progress to its note about twice a second, and messages for the user at once."""

    def __init__(self, chunk: ChunkDirectory) -> None:
        self.path, self._due = _path(chunk), 0.0

    def __call__(self, progress: Progress) -> None:
        """Write the progress if a note is due or it carries a message; a note that cannot be written is left out."""
        now = time.monotonic()
        if now < self._due and not progress.note:
            return
        self._due = now + (_SHOWN if progress.note else _EVERY)
        found = [progress.step, progress.steps, dict(progress.metrics), progress.note]
        temporary = self.path.with_suffix(f".{os.getpid()}")
        with suppress(OSError):
            self.path.parent.mkdir(exist_ok=True)
            temporary.write_text(json.dumps(found))
            temporary.replace(self.path)


class News:
    """Reads the notes of chunks, and returns only what has changed."""

    def __init__(self) -> None:
        self._known: dict[Path, Progress] = {}

    def of(self, chunk: ChunkDirectory) -> Progress | None:
        """Return the progress of a chunk; None if it is unknown or has not changed since the last call."""
        path = _path(chunk)
        try:
            found = parse_json(read_data(path))
        except (OSError, ValueError):  # not there yet, or no longer
            return None
        match found:
            case [int(step), int(steps), dict(metrics), str(note)] if all(
                isinstance(value, int | float) for value in metrics.values()
            ):
                progress = Progress(step, steps, metrics, note)
                if progress != self._known.get(path):
                    self._known[path] = progress
                    return progress
        return None


def forget(chunk: ChunkDirectory) -> None:
    """Remove the note of an earlier training, so that it is not taken for news."""
    with suppress(OSError):
        _path(chunk).unlink(missing_ok=True)


def _path(chunk: ChunkDirectory) -> Path:
    return chunk.path.parent / "notes" / f"{chunk.path.name}.json"
