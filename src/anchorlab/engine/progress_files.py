"""Notes next to the chunks of a run, in which workers elsewhere report progress and failures."""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from anchorlab.errors import StoreError
from anchorlab.plain import check_way
from anchorlab.runs import ChunkDirectory
from anchorlab.runs.atomic_files import read_json, write_json
from anchorlab.training import Progress

_EVERY = 2.0  # seconds between two notes of progress


class Noting:
    """Writes a chunk's progress to a note every few seconds, and messages for the user at once.

    Args:
        chunk: the chunk that the notes are about
        say: called with messages for the user
    """

    def __init__(self, chunk: ChunkDirectory, say: Callable[[str], None] = lambda text: None) -> None:
        self.chunk, self.say, self._due = chunk, say, 0.0

    def __call__(self, progress: Progress) -> None:
        """Write the progress if a note is due or it carries a message, for the process that waits; ignore errors."""
        if progress.note:
            self.say(progress.note)
        elif time.monotonic() < self._due:
            return
        found = {name: getattr(progress, name) for name in ("step", "steps", "note")}
        with suppress(StoreError):
            _write(self.chunk, "progress", {**found, "metrics": dict(progress.metrics)})
        self._due = time.monotonic() + _EVERY


class News:
    """Reads the progress of chunks, and returns only what has changed."""

    def __init__(self) -> None:
        self._known: dict[Path, Progress] = {}

    def of(self, chunk: ChunkDirectory) -> Progress | None:
        """Return the progress of a chunk; None if it is unknown or has not changed since the last call."""
        match _read(chunk, "progress"):
            case {"step": int(step), "steps": int(steps), "metrics": dict(metrics), "note": str(note)} if all(
                isinstance(value, int | float) for value in metrics.values()
            ):
                progress = Progress(step, steps, metrics, note)
                if progress != self._known.get(chunk.path):
                    self._known[chunk.path] = progress
                    return progress
        return None


def note_failure(chunk: ChunkDirectory, reason: str) -> None:
    """Record why a chunk failed: no worker takes it until its training is requested again."""
    _write(chunk, "failure", {"reason": reason})


def read_failure(chunk: ChunkDirectory) -> str | None:
    """Return why a chunk failed; None if it did not."""
    found = _read(chunk, "failure")
    return None if found is None else str(found.get("reason"))


def forget_failure(chunk: ChunkDirectory) -> None:
    """Remove the record of a failure, so that workers try the chunk again."""
    path = _path(chunk, "failure")
    check_way(path.parent, chunk.path.parents[2])
    path.unlink(missing_ok=True)


def _path(chunk: ChunkDirectory, kind: str) -> Path:
    return chunk.path.parent / "notes" / f"{chunk.path.name}.{kind}.json"


def _write(chunk: ChunkDirectory, kind: str, data: Mapping[str, Any]) -> None:
    path = _path(chunk, kind)
    with suppress(OSError):  # `write_json` then raises the error
        path.parent.mkdir(exist_ok=True)
    check_way(path.parent, chunk.path.parents[2])
    write_json(path.parent, path.name, data)


def _read(chunk: ChunkDirectory, kind: str) -> dict[str, Any] | None:
    path = _path(chunk, kind)
    if not path.exists():
        return None
    with suppress(StoreError):  # removed meanwhile, or damaged: treat as missing
        check_way(path, chunk.path.parents[2])
        return read_json(path, chunk.address)
    return None
