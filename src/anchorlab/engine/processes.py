"""Training in several processes, which end with the one that started them."""

import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from typing import Any

from anchorlab.engine.job import Job
from anchorlab.errors import AnchorlabError
from anchorlab.training import Progress

_LEAVES_WITHIN = 10.0  # seconds that a worker has to end before it is killed


def train_in_processes(
    jobs: Iterator[Job], workers: int, hear: Callable[[Job, Progress], None], done: Callable[[Job], None]
) -> None:
    """Trains all jobs in up to `workers` processes at once, and tells of progress and of each job that is done.

    Jobs are taken as they are needed. When anything goes wrong, and when this process is interrupted, the workers
    end, and what they trained since their last kept state is lost.

    Errors: whatever a job raises; `AnchorlabError` where a worker died.
    """
    # Not concurrent.futures: it overlooks the death of a process that was started while it looked, and then waits on.
    team: list[_Worker] = []
    left = True
    try:
        while True:
            while left and (any(worker.job is None for worker in team) or len(team) < workers):
                job = next(jobs, None)
                if job is None:
                    left = False
                    break
                idle = next((worker for worker in team if worker.job is None), None)
                if idle is None:
                    idle = _Worker()
                    team.append(idle)
                idle.start(job)
            busy = {worker.connection: worker for worker in team if worker.job is not None}
            if not busy:
                return
            for connection in wait(list(busy)):
                worker = busy[connection]  # type: ignore[index]
                assert worker.job is not None
                said = worker.receive()
                if isinstance(said, Progress):
                    hear(worker.job, said)
                    continue
                if said is not None:
                    raise said
                finished, worker.job = worker.job, None
                done(finished)
    finally:
        for worker in team:
            worker.end()
        for worker in team:
            worker.join()


class _Worker:
    """One process, the pipe to it, and the job it trains."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, os.getpid()), daemon=True)
        with _without_interrupts():  # the process inherits it
            self.process.start()
        theirs.close()
        self.job: Job | None = None

    def start(self, job: Job) -> None:
        """Hands it a job to train."""
        self.job = job
        try:
            self.connection.send(job)
        except (BrokenPipeError, ConnectionResetError):
            raise _death() from None

    def receive(self) -> Progress | BaseException | None:
        """What it says next: how far it is, what went wrong, or None when it is done."""
        try:
            said: Progress | BaseException | None = self.connection.recv()
        except (EOFError, ConnectionResetError):
            raise _death() from None
        return said

    def end(self) -> None:
        """Lets it go when it is idle, else stops it."""
        self.connection.close()
        if self.job is not None:
            self.process.terminate()

    def join(self) -> None:
        """Waits until it has ended."""
        self.process.join(_LEAVES_WITHIN)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def _death() -> AnchorlabError:
    return AnchorlabError(
        "a training process died: for want of memory (use fewer workers), or because the script that trains lacks "
        "`if __name__ == '__main__':`; what was kept is safe, run again to go on"
    )


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Ctrl-C goes to all processes of a terminal: the parent ends its workers, they need not hear it themselves."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _work(connection: "Connection[Any, Any]", parent: int) -> None:
    """What a worker does: trains the jobs it is handed until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with, args=(parent,), daemon=True).start()
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the parent needs no more, or is gone
        while True:
            job: Job = connection.recv()
            connection.send(_outcome(job, connection.send))


def _outcome(job: Job, report: Callable[[Progress], None]) -> Exception | None:
    try:
        job.train(report)
    except Exception as error:  # noqa: BLE001 - the parent raises it
        return _sendable(error)
    return None


def _sendable(error: Exception) -> Exception:
    """The error in a form that reaches another process: our own as they are, others in words with where they arose."""
    return error if isinstance(error, AnchorlabError) else RuntimeError("".join(traceback.format_exception(error)))


def _leave_with(parent: int) -> None:
    """Ends this process once its parent is gone, so that a killed training leaves nothing running."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
