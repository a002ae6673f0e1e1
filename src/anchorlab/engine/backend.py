"""Backends: where jobs are trained."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable

from anchorlab.engine.job import Job
from anchorlab.engine.progress_notes import PAUSE, News, forget
from anchorlab.training import Progress

Task = TypeVar("Task", bound=Hashable)

Hear = Callable[[Job, Progress], None]
"""Called with a job and its progress."""

Done = Callable[[Job, Exception | None], None]
"""Called once per job when it ends: with None if it is finished, else with the error that ended it."""


@runtime_checkable
class Backend(Protocol):
    """A place where jobs are trained: processes of this machine, or of machines that share the store's folder."""

    def beginning(self, store: Path) -> str:
        """Return a message to show before training in a store begins; may be empty."""

    def train(self, jobs: Iterator[Job], hear: Hear, done: Done) -> None:
        """Train all jobs, and return once each of them is finished or has failed; one that fails stops no other.

        Args:
            jobs: consumed lazily: the next job is taken only when it can be trained
            hear: called with a job and its progress
            done: called with each job, and the error that ended it, if any

        Errors: any error of `hear` or `done`; training then stops.
        """


class Pool(Protocol[Task]):
    """Processes that train jobs, as `follow` uses them.

    Fields
        slots: how many jobs it takes at a time
    """

    slots: int

    def submit(self, jobs: Sequence[Job]) -> list[Task]:
        """Begin to train jobs."""

    def ended(self, tasks: Sequence[Task], seconds: float) -> Sequence[Task]:
        """Return the tasks that have ended, after waiting for one at most so many seconds."""

    def error(self, task: Task) -> Exception | None:
        """Return the error that ended a task; None if it succeeded."""

    def stop(self, tasks: Sequence[Task]) -> None:
        """End tasks early; each keeps its state."""


def follow(pool: Pool[Task], jobs: Iterator[Job], hear: Hear, done: Done) -> None:
    """Train jobs in a pool, as `Backend.train` requires, and read their notes; if it ends early, stop all tasks."""
    running: dict[Task, Job] = {}
    news = News()
    try:
        while True:
            new = list(islice(jobs, pool.slots - len(running)))
            for job in new:
                forget(job.first.chunk)
            if new:
                running |= zip(pool.submit(new), new, strict=True)
            if not running:
                return
            ended = pool.ended(list(running), PAUSE)
            for job in running.values():
                for progress in news.of(job.first.chunk):
                    hear(job, progress)
            for task in ended:
                done(running.pop(task), pool.error(task))
    finally:
        pool.stop(list(running))
