"""Train jobs in several child processes, which end together with this one."""

import os
import re
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

from loky.backend.context import get_context
from loky.process_executor import BrokenProcessPool, ProcessPoolExecutor

from anchorlab.engine.job import Job
from anchorlab.errors import AnchorlabError
from anchorlab.training.signals import DelayedSignals

_SECONDS_TO_EXIT = 20.0  # that a worker has to keep its state before it is killed
_PAUSE = 0.5  # seconds between two checks that the parent is alive
_NEVER_REPLACED = {"LOKY_MAX_MEMORY_LEAK_SIZE": "1e18"}  # loky ends processes that grow, as these do with their jobs
_SIGNAL = re.compile(r"(SIG[A-Z]+)\(-\d+\)")  # how loky names a signal
_context: Any = get_context("loky")  # starts each process with an interpreter of its own


@dataclass(frozen=True)
class Local:
    """Child processes on this machine.

    Fields
        workers: the maximum number of processes
        devices: the devices that they are spread over
    """

    workers: int
    devices: tuple[str, ...] = ("cpu",)
    modules: tuple[str, ...] = ()
    label: str = "starting processes"

    @property
    def device(self) -> str:
        """The first device."""
        return self.devices[0]

    @contextmanager
    def pool(self) -> Iterator["_Processes"]:
        """Yield the processes. Signals wait until no future's lock is held, since they would leave it locked."""
        with DelayedSignals() as signals:
            yield _Processes(self, signals)


class _Processes:
    """A `Pool` of child processes, each with its own executor, so that a process that dies costs only its own job."""

    def __init__(self, local: Local, signals: DelayedSignals) -> None:
        self.devices, self.slots, self.signals = local.devices, local.workers, signals
        self.team: list[_Process] = []

    def submit(self, jobs: Sequence[Job]) -> list["_Process"]:
        return [self._start(job) for job in jobs]

    def ended(self, tasks: Sequence["_Process"], seconds: float) -> list[tuple["_Process", Exception | None]]:
        """Return the processes whose jobs have ended, with the errors; the pool drops processes that died or exited."""
        wait([one.outcome for one in tasks], seconds, FIRST_COMPLETED)
        self.signals.deliver()
        return [(one, self._error(one)) for one in tasks if one.outcome.done()]

    def stop(self, tasks: Sequence["_Process"]) -> None:
        """Let busy processes keep their states, and end all of them."""
        with DelayedSignals():
            for one in tasks:
                one.interrupt()
            wait([one.outcome for one in tasks], _SECONDS_TO_EXIT)
            for one in self.team:
                one.executor.shutdown(wait=True, kill_workers=True)

    def _start(self, job: Job) -> "_Process":
        while idle := [one for one in self.team if not one.busy]:
            try:
                idle[0].start(job)
                return idle[0]
            except BrokenProcessPool:  # it died while it was idle
                self.team.remove(idle[0])
        self.team.append(_Process(min(self.devices, key=[one.device for one in self.team].count)))
        self.team[-1].start(job)
        return self.team[-1]

    def _error(self, process: "_Process") -> Exception | None:
        process.busy = False
        try:
            return process.outcome.result()
        except BrokenProcessPool as error:
            self.team.remove(process)
            if not process.begun:  # another one would die too
                raise _death(error) from None
            return _death(error)
        except SystemExit as error:  # raised by user code, or by a signal to this process alone
            self.team.remove(process)
            process.executor.shutdown(wait=True, kill_workers=True)
            return AnchorlabError(f"a training process ended with code {error.code}; run again to resume")


class _Process:
    def __init__(self, device: str) -> None:
        self.device, self.busy = device, False
        self.executor = ProcessPoolExecutor(
            1, context=_context, initializer=_begin, initargs=(os.getpid(),), env=_NEVER_REPLACED
        )
        self.outcome: Future[AnchorlabError | None]
        with _interrupts_ignored():  # inherited by the process
            self._number: Future[int] = self.executor.submit(os.getpid)

    @property
    def begun(self) -> bool:
        """Whether the process has run at all."""
        return self._number.done() and self._number.exception() is None

    def start(self, job: Job) -> None:
        """Send a job. Errors: `BrokenProcessPool` if the process has died."""
        self.outcome = self.executor.submit(replace(job, device=self.device))
        self.busy = True

    def interrupt(self) -> None:
        """Ask the process to keep its state and exit; kill one that is still starting."""
        if self.begun:
            with suppress(ProcessLookupError):
                os.kill(self._number.result(), signal.SIGTERM)
        else:
            self.executor.shutdown(wait=False, kill_workers=True)


def _death(error: BrokenProcessPool) -> AnchorlabError:
    found = _SIGNAL.search(str(error))
    how = f"was killed by {found[1]}" if found else f"died ({str(error).partition(chr(10))[0]})"
    cause = ": out of memory (use fewer workers)" if found and found[1] == "SIGKILL" else ""
    return AnchorlabError(f"a training process {how}{cause}; what was kept is safe, run again to resume")


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Ignore Ctrl-C inside `with`: a terminal sends it to all processes, but only the parent should stop workers."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _begin(parent: int) -> None:
    """Prepare a worker: only its parent ends it, and it ends with its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)  # training delays it until the state is kept
    threading.Thread(target=_exit_with, args=(parent,), daemon=True).start()


def _leave(number: int, frame: FrameType | None) -> None:
    """Exit the process by an exception, so that open files are closed on the way."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(128 + number)


def _exit_with(parent: int) -> Any:
    """Exit this process once its parent is gone, so that no worker survives when training is killed."""
    while os.getppid() == parent:
        time.sleep(_PAUSE)
    os._exit(1)
