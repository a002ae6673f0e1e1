"""Train jobs in this process, or in several child processes, which end together with this one."""

import multiprocessing
import os
import pickle
import signal
import threading
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
_OUT_OF_MEMORY = AnchorlabError("out of memory; use fewer workers, or reduce the size of the work")
_SECONDS_TO_EXIT = 20.0  # in which a worker keeps its state; after that it is killed
_CONTEXT = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class Local:
    """This machine: one worker is the process itself, several workers are child processes.

    Fields
        workers: the maximum number of processes
        devices: the devices that workers are spread over; None: each job names its own
    """

    workers: int = 1
    devices: tuple[str, ...] | None = None

    def beginning(self, store: Path) -> str:
        """Return a message that several processes are being started; empty for one worker."""
        return f"starting {self.workers} processes" if self.workers > 1 else ""

    def train(self, jobs: Iterator[Job], hear: Hear, done: Done) -> None:
        """Train all jobs, as `Backend.train` requires.

        After an error or an interrupt of this process, all workers keep their states and stop.
        """
        if self.workers > 1:
            _in_processes(jobs, self, hear, done)
        else:
            _here(jobs, hear, done)


class _DeathError(AnchorlabError):
    """A worker process died unexpectedly."""


class _Unheard(BaseException):
    """Carries an error of `hear` through a job: it ends all training and is not a failure of the job."""


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
            done(job, _OUT_OF_MEMORY if is_out_of_memory(error) else error)
        else:
            done(job, None)


def _in_processes(jobs: Iterator[Job], local: Local, hear: Hear, done: Done) -> None:
    # concurrent.futures does not notice that a process dies which started while it polled, and then waits forever.
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
                        if not worker.begun:  # another one would die too
                            raise message
                    done(ended, message)
    finally:
        for worker in team:
            worker.end()
        for worker in team:
            worker.join()


def _assign(jobs: Iterator[Job], team: list["_Worker"], local: Local) -> dict["Connection[Any, Any]", "_Worker"]:
    """Give jobs to idle workers, starting workers up to the limit; return the busy workers by connection."""
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
    """A worker process with its device (None: the job's), its connection, and its job (None when idle)."""

    def __init__(self, device: str | None) -> None:
        self.device, self.begun = device, False
        self.connection, theirs = _CONTEXT.Pipe()
        self.process = _CONTEXT.Process(target=_work, args=(theirs,), daemon=True)
        with _interrupts_ignored():  # inherited by the process
            self.process.start()
        theirs.close()
        self.job: Job | None = None

    def start(self, job: Job) -> None:
        """Send a job to the process."""
        self.job = job
        with suppress(BrokenPipeError, ConnectionResetError):  # the process is dead: `receive` reports it
            self.connection.send(job if self.device is None else replace(job, device=self.device))

    def receive(self) -> Progress | Exception | str | None:
        """Return the next message: `_BEGUN`, progress, None for a finished job, or the error that ended it."""
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
    """Ignore Ctrl-C inside `with`: a terminal sends it to all processes, but only the parent should stop workers."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _work(connection: "Connection[Any, Any]") -> None:
    """Train the jobs that arrive, until the connection closes; this is a worker's main function."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)  # training delays it until the state is kept
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the parent is done, or gone
        connection.send(_BEGUN)
        while True:
            connection.send(_outcome(connection))


def _leave(number: int, frame: FrameType | None) -> None:
    """Exit the process by an exception, so that leases and open files are closed on the way."""
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
    """Return an error that can be pickled: anchorlab's own as they are, others as text with their traceback."""
    if is_out_of_memory(error):
        return _OUT_OF_MEMORY
    return error if isinstance(error, AnchorlabError) else RuntimeError("".join(traceback.format_exception(error)))


def _exit_with_parent() -> None:
    """Exit this process once its parent is gone, so that no worker survives when training is killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)
