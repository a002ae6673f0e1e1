"""Moments of a process, counted by what it does to the files of a store; at one of them a fault strikes it.

A moment is before the k-th operation of its place: an opening to write, a renaming, a removal, a new folder, or the end
of a file's content. Every window in which a kill could leave files half done lies between two of them.
"""

import json
import os
import signal
import stat
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

_EVENTS = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.utime")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


@dataclass(frozen=True)
class Moment:
    """When a process is struck, and how.

    Fields
        place: which part of the store it writes, one of those that `place_of` returns
        number: which of its operations there, from 1
        share: of a file that is being written, the share of its content that is there
        act: `kill` the process, `freeze` it, or `fill` the disk
    """

    place: str
    number: int
    share: float = 1.0
    act: str = "kill"


@dataclass(frozen=True)
class Struck:
    """A fault that has happened: to which process, in which role, where."""

    role: str
    process: int
    place: str
    path: str = ""
    act: str = "kill"

    def to_json(self) -> str:
        """Return it as a line of the record."""
        return json.dumps(asdict(self)) + "\n"


class Watch:
    """Counts the operations of this process in a store, and strikes at a moment; none only counts.

    Args:
        root: the store
        moment: when to strike
        role: what this process is
        record: where it is written that the fault has happened; the counts, too, at the end
    """

    def __init__(self, root: Path, moment: Moment | None, role: str, record: Path) -> None:
        self.root, self.moment, self.role = f"{root}/", moment, role
        self.counts: Counter[str] = Counter()
        self.record = os.open(record, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._busy = False

    def begin(self) -> None:
        """Watch this process to its end."""
        sys.addaudithook(self._heard)
        os.fsync = self._synced  # a killed process loses nothing that it has written

    def _heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in _EVENTS or self._busy:
            return
        if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & _WRITES):
            return
        if event == "os.rename":
            self._meet(os.fspath(arguments[1]))
        elif event in ("os.remove", "os.rmdir") and arguments[1] != -1:  # a folder with all that is in it
            self._meet(arguments[0], "removal of the states")
        elif isinstance(arguments[0], str | os.PathLike):
            self._meet(os.fspath(arguments[0]))

    def _synced(self, descriptor: int) -> None:
        path = str(Path(f"/proc/self/fd/{descriptor}").readlink())
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            self._meet(path, content=descriptor)
        else:
            self._meet(path)

    def _meet(self, path: str, place: str | None = None, content: int | None = None) -> None:
        if place is None:
            if not path.startswith(self.root):
                return
            place = place_of(path.removeprefix(self.root))
        self.counts[place] += 1
        moment = self.moment
        if moment is None or place != moment.place or self.counts[place] != moment.number:
            return
        self._busy = True
        self.note(path)
        if moment.act != "kill":
            fill(Path(self.root).parent) if moment.act == "fill" else os.kill(os.getpid(), signal.SIGSTOP)
            self._busy = False
            return
        if content is not None:
            os.ftruncate(content, int(os.fstat(content).st_size * moment.share))
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)

    def note(self, path: str) -> None:
        """Write that this process is being struck."""
        assert self.moment is not None
        name = path.removeprefix(self.root)
        os.write(
            self.record, Struck(self.role, os.getpid(), self.moment.place, name, self.moment.act).to_json().encode()
        )


def place_of(name: str) -> str:
    """Return which part of a store a file or folder belongs to, by its name relative to the store.

    >>> place_of("0123456789abcdef0123/state/chunk-0000.2/step-00000008.abc.safetensors")
    'state'
    """
    top, *rest = name.split("/")
    if top == "studies":
        return "findings"
    if not rest or rest[0] in ("lock", "spec.json") or rest[0].startswith("."):
        return "run"
    if rest[0] in ("metrics.parquet", "manifest.json"):
        return "end of a run"
    if rest[0] == "checkpoints" or rest[1:2] == ["merged"]:
        return "merge"
    if rest[1:2] == ["notes"]:
        return "note"
    if len(rest) == 1 or not rest[1].startswith("chunk-"):
        return "claim" if rest[-1].startswith(".clock") else "plan"
    inside = rest[2:]
    if not inside or inside[0].startswith(("claim", ".clock")):
        return "claim"
    if inside[0] == "checkpoints":
        return "part of a checkpoint"
    return "result" if inside[0].startswith("result") else "state"


PLACES = ("run", "plan", "claim", "state", "part of a checkpoint", "result", "merge", "end of a run",
          "removal of the states", "note", "findings")  # fmt: skip
"""What a process writes in a store, in about the order in which it does."""


def struck(record: Path) -> list[Struck]:
    """Return the faults that have happened."""
    if not record.exists():
        return []
    return [Struck(**json.loads(line)) for line in record.read_text().splitlines()]


def fill(folder: Path) -> None:
    """Fill the disk of a folder to the last byte."""
    with (folder / BALLAST).open("ab", buffering=0) as file:
        for size in (2**16, 2**12, 1):
            with suppress(OSError):
                while file.write(bytes(size)):
                    pass


BALLAST = "ballast"
"""The name of the file that fills a disk."""


def counted(root: Path, work: Callable[[], object]) -> Counter[str]:
    """Return how many operations this process does in each place of a store while it works. To be called once."""
    watch = Watch(root, None, "", Path(os.devnull))
    watch.begin()
    work()
    return watch.counts
