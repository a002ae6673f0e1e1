"""The processes that faults strike: the driver of a study, the processes that it starts, workers on a shared folder."""

import json
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from anchorlab.engine import Worker, local
from anchorlab.errors import AnchorlabError
from anchorlab.runs import Store
from tests.faults.durable import keep_account
from tests.faults.moments import Moment, Watch
from tests.faults.study import keep_often, run_the_study
from tests.processes import processes

DRIVER, WORKER = "driver", "worker"

_work_of_a_process = local._work


@dataclass(frozen=True)
class Place:
    """Where a case happens: its store, the record of what struck, and what the driver said."""

    folder: Path

    @property
    def root(self) -> Path:
        """The store, on a disk of its own, which may be full."""
        return self.disk / "store"

    @property
    def disk(self) -> Path:
        """The folder where a disk can be mounted."""
        return self.folder / "disk"

    @property
    def record(self) -> Path:
        """The faults that have happened."""
        return self.folder / "struck"

    @property
    def account(self) -> Path:
        """What is durable, of which processes keep account if this folder is there."""
        return self.folder / "account"

    @property
    def said(self) -> Path:
        """How the last driver ended by itself."""
        return self.folder / "said"

    @property
    def errors(self) -> Path:
        """The errors with which drivers and workers ended by themselves, a line each."""
        return self.folder / "errors"


@dataclass(frozen=True)
class Said:
    """How a process ended by itself: the kind of its error, its words, and whether it is one of anchorlab's own.

    Kind and words are empty if it did its work.
    """

    kind: str = ""
    words: str = ""
    own: bool = True
    trace: str = ""

    @classmethod
    def of(cls, work: Callable[[], object], place: Place) -> "Said":
        """Return how some work ends, and write it down if it is an error."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 - it is judged
            own = isinstance(error, AnchorlabError)
            said = cls(type(error).__name__, str(error), own, "" if own else traceback.format_exc())
            with place.errors.open("a") as file:
                file.write(json.dumps(vars(said)) + "\n")
            return said
        return cls()

    def __str__(self) -> str:
        return f"{self.kind}: {self.words}\n{self.trace}".rstrip() if self.kind else "finished"


def drive(place: Place, on: str, workers: int, moment: Moment | None, of_worker: Moment | None) -> None:
    """Run the study; this process is struck at `moment`, the first of the processes that it starts at `of_worker`."""
    _begin()
    with (place.folder / "log").open("ab") as log:  # Ray writes pages about a node that dies
        for stream in (1, 2):
            os.dup2(log.fileno(), stream)
    local._work = partial(_work, place, of_worker)
    _watch(place, moment, DRIVER)
    said = Said.of(partial(run_the_study, place.root, on, workers), place)
    place.said.write_text(json.dumps(vars(said)))
    os._exit(bool(said.kind))


def _work(place: Place, moment: Moment | None, connection: Any) -> None:
    """Do the work of a process that a driver starts; the first one is struck."""
    keep_often()
    if moment is not None and not _is_first(place):
        moment = None
    _watch(place, moment, WORKER)
    _work_of_a_process(connection)


def _is_first(place: Place) -> bool:
    with suppress(FileExistsError):
        (place.folder / f"first-{os.getppid()}").touch(exist_ok=False)
        return True
    return False


def work(place: Place, moment: Moment | None, lease: float = 120.0, until_empty: bool = False) -> None:
    """Work as one of several on a shared folder, for ever or until nothing is left; it is struck at `moment`."""
    _begin()
    _watch(place, moment, WORKER)
    worker = Worker(Store(place.root), keep_every=0.0, pause=0.05, lease=lease)
    Said.of(partial(worker.work, until_empty), place)


def _watch(place: Place, moment: Moment | None, role: str) -> None:
    """Watch this process to its end, and keep account of what it makes durable if that is asked for."""
    Watch(place.root, moment, role, place.record).begin()
    if place.account.exists():
        keep_account(place.root, place.account)


def _begin() -> None:
    """Let this process train on one thread, keep states often, and end with its parent."""
    torch.set_num_threads(1)
    keep_often()
    end_with_parent()


def end_with_parent() -> None:
    """End this process when its parent has ended."""
    threading.Thread(target=local._exit_with_parent, daemon=True).start()


def start(target: Callable[..., None], *arguments: Any) -> Any:
    """Start a process of the server."""
    child = processes.Process(target=target, args=arguments)
    child.start()
    return child


def read_said(place: Place) -> Said | None:
    """Return how the driver ended, None if it was killed."""
    return Said(**json.loads(place.said.read_text())) if place.said.exists() else None


def errors(place: Place) -> list[Said]:
    """Return the errors with which processes have ended by themselves."""
    return [Said(**json.loads(line)) for line in place.errors.read_text().splitlines()] if place.errors.exists() else []


def kill_alive(process: int) -> bool:
    """Kill a process and return whether it was alive: it is frozen first, which nothing that has ended can be."""
    try:
        os.kill(process, signal.SIGSTOP)
        end = time.monotonic() + 5
        while (state := state_of(process)) not in ("T", "t") and time.monotonic() < end:
            if state in ("Z", "X", ""):
                return False
            time.sleep(0.001)
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def children(process: int) -> list[int]:
    """Return the processes that a driver has started to train."""
    found = []
    with suppress(OSError):
        for text in Path(f"/proc/{process}/task/{process}/children").read_text().split():
            with suppress(OSError):
                if b"spawn_main" in Path(f"/proc/{text}/cmdline").read_bytes():
                    found.append(int(text))
    return found


def state_of(process: int) -> str:
    """Return the state of a process as the kernel calls it, such as `T` for a frozen one; nothing if there is none."""
    with suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    return ""
