"""Train jobs in this process, or in several, which end together with the process that started them."""

import multiprocessing
import os
import pickle
import signal
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import FrameType
from typing import Any

from anchorlab.engine.backend import Done, Hear
from anchorlab.engine.job import Job
from anchorlab.errors import AnchorlabError, is_out_of_memory
from anchorlab.training import Progress

_BEGUN = "begun"  # the first message of a worker
_SECONDS_TO_EXIT = 20.0  # to keep its state; a worker that has not exited then is killed


@dataclass(frozen=True)
class Local:
    """This machine: the process itself for one worker, else as many processes.

    Fields
        workers: the greatest number of processes
        devices: the device of each worker in turn; None for those that the jobs name
    """

    workers: int = 1
    devices: tuple[str, ...] | None = None

    def beginning(self, store: Path) -> str:
        """Return that several processes are started."""
        return f"starting {self.workers} processes" if self.workers > 1 else ""

    def train(self, jobs: Iterator[Job], hear: Hear, done: Done) -> None:
        """Train all jobs, as `Backend.train` says.

        After an error or an interrupt of this process, all workers keep their states and stop.
        """
        if self.workers > 1:
            _in_processes(jobs, self, hear, done)
        else:
            _here(jobs, hear, done)


class _DeathError(AnchorlabError):
    """The end of a worker that nobody asked to end."""


class _Unheard(BaseException):
    """An error of `hear`, which ends the training: it is no failure of the job."""


def _here(jobs: Iterator[Job], hear: Hear, done: Done) -> None:
    for job in jobs:

        def heard(progress: Progress, job: Job = job) -> None:
            try:
                hear(job, progress)
            except Exception as error:
                raise _Unheard from error

        try:
            job.train(heard)
        except _Unheard as error:
            assert error.__cause__ is not None
            raise error.__cause__ from None
        except Exception as error:  # noqa: BLE001 - the other jobs go on
            done(job, error)
        else:
            done(job, None)


def _in_processes(jobs: Iterator[Job], local: Local, hear: Hear, done: Done) -> None:
    # Not concurrent.futures, which misses the death of a process that starts while it polls, and then waits forever.
    team: list[_Worker] = []
    try:
        while busy := _assign(jobs, team, local):
            for connection in wait(list(busy)):
                worker = busy[connection]  # type: ignore[index]
                assert worker.job is not None
                message = worker.receive()
                if isinstance(message, Progress):
                    hear(worker.job, message)
                elif not isinstance(message, str):
                    ended, worker.job = worker.job, None
                    if isinstance(message, _DeathError):
                        team.remove(worker)
                        if not worker.begun:  # no other would begin either
                            raise message
                    done(ended, message)
    finally:
        for worker in team:
            worker.end()
        for worker in team:
            worker.join()


def _assign(jobs: Iterator[Job], team: list["_Worker"], local: Local) -> dict["Connection[Any, Any]", "_Worker"]:
    """Give jobs to idle workers, starting as many as there may be; return the busy ones by their connections."""
    while any(worker.job is None for worker in team) or len(team) < local.workers:
        job = next(jobs, None)
        if job is None:
            break
        idle = next((worker for worker in team if worker.job is None), None)
        if idle is None:
            used = [worker.device for worker in team]
            devices = local.devices or (None,)
            idle = _Worker(min(devices, key=used.count))
            team.append(idle)
        idle.start(job)
    return {worker.connection: worker for worker in team if worker.job is not None}


class _Worker:
    """A process, its device, the connection to it, and the job that it trains, or None when idle."""

    def __init__(self, device: str | None) -> None:
        context = multiprocessing.get_context("spawn")
        self.device, self.begun = device, False
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, os.getpid()), daemon=True)
        with _interrupts_ignored():  # the process inherits this
            self.process.start()
        theirs.close()
        self.job: Job | None = None

    def start(self, job: Job) -> None:
        """Send a job to the process."""
        self.job = job
        with suppress(BrokenPipeError, ConnectionResetError):  # it is dead, which `receive` notices
            self.connection.send(job if self.device is None else replace(job, device=self.device))

    def receive(self) -> Progress | Exception | str | None:
        """Return the next message: `_BEGUN`, progress, the error that ended the job, or None for a finished job."""
        try:
            message: Progress | Exception | str | None = self.connection.recv()
        except (EOFError, ConnectionResetError):
            self.join()
            return self._death()
        self.begun = True
        return message

    def _death(self) -> _DeathError:
        code = self.process.exitcode or 0
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else "died"
        cause = "out of memory (use fewer workers)"
        if not self.begun:
            cause += ", or the script that trains lacks `if __name__ == '__main__':`"
        return _DeathError(f"a training process {how}: {cause}; what was kept is safe, run again to resume")

    def end(self) -> None:
        """Let an idle process exit, and ask a busy one to keep its state and exit."""
        self.connection.close()
        if self.job is not None:
            self.process.terminate()

    def join(self) -> None:
        """Wait for the process to exit; kill it if that takes too long."""
        self.process.join(_SECONDS_TO_EXIT)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Ignore Ctrl-C inside. A terminal sends it to all its processes, but the parent alone should stop the workers."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _work(connection: "Connection[Any, Any]", parent: int) -> None:
    """Train the jobs that arrive until the connection closes; the main function of a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)  # training delays it until it has kept its state
    threading.Thread(target=_exit_with, args=(parent,), daemon=True).start()
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the parent is done, or gone
        connection.send(_BEGUN)
        while True:
            connection.send(_outcome(connection))


def _leave(number: int, frame: FrameType | None) -> None:
    """Leave the process, and what is open on the way."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(128 + number)


def _outcome(connection: "Connection[Any, Any]") -> Exception | None:
    """Train the next job; return the error that ended it, or None."""
    data = connection.recv_bytes()
    try:
        job: Job = pickle.loads(data)
        job.train(connection.send)
    except (BrokenPipeError, ConnectionResetError):
        raise
    except Exception as error:  # noqa: BLE001 - the parent tells of it
        return _sendable(error)
    return None


def _sendable(error: Exception) -> Exception:
    """Return the error itself if it is anchorlab's own, else a `RuntimeError` with its traceback as text."""
    if is_out_of_memory(error):
        return AnchorlabError("out of memory; use fewer workers, or reduce the size of the work")
    return error if isinstance(error, AnchorlabError) else RuntimeError("".join(traceback.format_exception(error)))


def _exit_with(parent: int) -> None:
    """Exit this process once its parent is gone, so that training leaves no processes behind when it is killed."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
