"""Pools: the processes that train jobs, other than this one."""

from collections.abc import Hashable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar, runtime_checkable

from anchorlab.engine.job import Job

PAUSE = 0.5  # seconds between two looks at the progress of jobs

Task = TypeVar("Task", bound=Hashable)


class Pool(Protocol[Task]):
    """Processes that train jobs.

    Fields
        slots: the largest number of jobs that may run or wait at a time
    """

    slots: int

    def submit(self, jobs: Sequence[Job]) -> list[Task]:
        """Start to train jobs, by calling each in another process, and return one task per job.

        A task may belong to an earlier command that trains one of the job's chunks; the others are submitted later.
        """

    def ended(self, tasks: Sequence[Task], seconds: float) -> list[tuple[Task, Exception | None]]:
        """Return the tasks that have ended, each with its error, if any; wait at most `seconds` for the first."""

    def stop(self, tasks: Sequence[Task]) -> None:
        """Close the pool, whether or not all jobs have ended; the tasks given still run, and keep their states."""


@runtime_checkable
class Backend(Protocol):
    """A place to train: makes a pool of processes on this machine, or on machines that share the store's folder."""

    @property
    def label(self) -> str:
        """The text to show before the first progress, such as `starting processes`."""

    @property
    def device(self) -> str:
        """The device of each job: `cpu` or `cuda`."""

    @property
    def modules(self) -> tuple[str, ...]:
        """Further Python modules that register the tasks and models of the runs."""

    def pool(self) -> AbstractContextManager[Pool[Any]]:
        """Connect to the processes, or prepare to start them."""
