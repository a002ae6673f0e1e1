"""Backends: where jobs are trained."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol, runtime_checkable

from anchorlab.engine.job import Job
from anchorlab.training import Progress

Hear = Callable[[Job, Progress], None]
"""Called with a job and its progress."""

Done = Callable[[Job, Exception | None], None]
"""Called once per job when it ends: with None if it is finished, else with the error that ended it."""


@runtime_checkable
class Backend(Protocol):
    """A place where jobs are trained: processes of this machine, or workers elsewhere that share the store."""

    def beginning(self, store: Path) -> str:
        """Return a message to show before training in a store begins; may be empty."""

    def train(self, jobs: Iterator[Job], hear: Hear, done: Done) -> None:
        """Train all jobs, and return once each of them is finished or has failed.

        A job that fails does not stop the others. `InUseError` means that another process works on the job: it has not
        failed, and is tried again later.

        Args:
            jobs: consumed lazily: the next job is taken only when it can be trained
            hear: called with a job and its progress
            done: called with each job, and the error that ended it, if any

        Errors: any error of `hear` or `done`; training then stops.
        """
