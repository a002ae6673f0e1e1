"""Train jobs in several processes, which end together with the process that started them."""

import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from types import FrameType
from typing import Any

from anchorlab.engine.job import Job
from anchorlab.errors import AnchorlabError, is_out_of_memory
from anchorlab.training import Progress

_SECONDS_TO_EXIT = 20.0  # to keep its state; a worker that has not exited then is killed


def train_in_processes(
    jobs: Iterator[Job], workers: int, on_progress: Callable[[Job, Progress], None], on_done: Callable[[Job], None]
) -> None:
    """Train all jobs, in up to `workers` processes at once.

    After an error or an interrupt of this process, all workers keep their states and stop.

    Args:
        jobs: the next one is taken when a worker is free
        workers: the greatest number of processes
        on_progress: called with a job and its progress
        on_done: called with each finished job

    Errors: any that a job raises; `AnchorlabError` if a worker dies.
    """
    # Not concurrent.futures, which misses the death of a process that starts while it polls, and then waits forever.
    team: list[_Worker] = []
    try:
        while busy := _assign(jobs, team, workers):
            for connection in wait(list(busy)):
                worker = busy[connection]  # type: ignore[index]
                assert worker.job is not None
                message = worker.receive()
                if isinstance(message, Progress):
                    on_progress(worker.job, message)
                elif message is not None:
                    raise message
                else:
                    finished, worker.job = worker.job, None
                    on_done(finished)
    finally:
        for worker in team:
            worker.end()
        for worker in team:
            worker.join()


def _assign(jobs: Iterator[Job], team: list["_Worker"], workers: int) -> dict["Connection[Any, Any]", "_Worker"]:
    """Give jobs to idle workers, starting up to `workers` of them; return the busy ones by their connections."""
    while any(worker.job is None for worker in team) or len(team) < workers:
        job = next(jobs, None)
        if job is None:
            break
        idle = next((worker for worker in team if worker.job is None), None)
        if idle is None:
            idle = _Worker()
            team.append(idle)
        idle.start(job)
    return {worker.connection: worker for worker in team if worker.job is not None}


class _Worker:
    """A process, the connection to it, and the job that it trains, or None when idle."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, os.getpid()), daemon=True)
        with _interrupts_ignored():  # the process inherits this
            self.process.start()
        theirs.close()
        self.job: Job | None = None

    def start(self, job: Job) -> None:
        """Send a job to the process."""
        self.job = job
        try:
            self.connection.send(job)
        except (BrokenPipeError, ConnectionResetError):
            raise _death() from None

    def receive(self) -> Progress | BaseException | None:
        """Return the next message: progress, the error that ended the job, or None for a finished job."""
        try:
            message: Progress | BaseException | None = self.connection.recv()
        except (EOFError, ConnectionResetError):
            raise _death() from None
        return message

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


def _death() -> AnchorlabError:
    return AnchorlabError(
        "a training process died: out of memory (use fewer workers), or the script that trains lacks "
        "`if __name__ == '__main__':`; what was kept is safe, run again to resume"
    )


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
        while True:
            job: Job = connection.recv()
            connection.send(_outcome(job, connection.send))


def _leave(number: int, frame: FrameType | None) -> None:
    """Leave the process, and what is open on the way."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(128 + number)


def _outcome(job: Job, report: Callable[[Progress], None]) -> Exception | None:
    """Train a job; return the error that ended it, or None."""
    try:
        job.train(report)
    except Exception as error:  # noqa: BLE001 - the parent raises it
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
