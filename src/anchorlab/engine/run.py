"""Running experiments: in this process, or in several at once; what is already in the store is not run again."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch

from anchorlab.engine.job import Job
from anchorlab.engine.processes import train_in_processes
from anchorlab.errors import SpecError, StoreError
from anchorlab.runs import RunDirectory, Store
from anchorlab.training import Experiment, Progress, TrainedRun, memory_per_member, merge, work_per_step
from anchorlab.training.trainer import ExecutionName, check_device

_MEMORY_SHARE = 0.5  # of the machine's memory that one run's members may take together
_ORPHANS_LEAVE = 10.0  # seconds within which the workers of a killed process have noticed and let go of their chunks


@dataclass
class Status:
    """How far a set of experiments has come, for progress bars: operations done of all, and the newest metrics.

    Of those done, `before` were there when the jobs of work were first heard of: a run that was killed and goes on.
    """

    total: int
    done: int = 0
    label: str = ""
    cells: int = 0
    cells_done: int = 0
    before: int = 0
    metrics: dict[str, float] = field(default_factory=dict)


def run(
    experiments: Sequence[Experiment],
    store: Store | None = None,
    workers: int | None = None,
    device: str = "cpu",
    execution: ExecutionName = "auto",
    report: Callable[[Status], None] | None = None,
    keep_every: float = 20.0,
) -> list[TrainedRun]:
    """Trains what the store does not hold yet, and returns the finished run of every experiment.

    On a CPU the members of an experiment are divided over `workers` processes (None: one for every core) of one thread
    each, of more only where there are fewer jobs than workers; on CUDA they stay together in this process. A run that
    was killed goes on from its last state, kept about every `keep_every` seconds, on the plan it began with, and ends
    with the same bytes as one that never was. A result does not depend on the division: equal in float64, within
    rounding in float32.

    Errors: `SpecError` for a device that is not there; `StoreError` for a damaged store, or a run that another process
    is writing; `AnchorlabError` where a process died.
    """
    store = store or Store()
    if starts := [one.start for one in experiments if one.start is not None and one.cell not in store]:
        run(starts, store, workers, device, execution, report, keep_every)
    device = "cpu" if check_device(device).type == "cpu" else device
    if workers is None:
        workers = 1 if device != "cpu" else cores()
    if workers < 1:
        raise SpecError("workers", f"{workers} is not a number of processes", "give 1 or more")
    todo = {one.cell.address: one for one in experiments if one.cell not in store}
    for experiment in experiments:
        if experiment.cell.address not in todo and (problems := store.open(experiment.cell).problems()):
            raise StoreError(problems[0])
    divisions = {address: _divide(one, workers, device) for address, one in todo.items()}
    count = sum(map(len, divisions.values()))
    plans = {address: _plan(division, workers, count, device) for address, division in divisions.items()}
    work = {address: work_per_step(one) for address, one in todo.items()}
    progress = _Progress(sum(work[address] * one.member_steps for address, one in todo.items()), len(todo), report)
    with ExitStack() as stack:
        queue = _Work(store, todo, plans, work, device, execution, keep_every, stack, progress)
        if min(workers, count) > 1 and all(_importable(one) for one in todo.values()):
            progress.say(f"starting {min(workers, count)} processes")
            train_in_processes(queue.jobs(), min(workers, count), progress.hear, queue.done)
        else:
            for job in queue.jobs():
                job.train(lambda heard, job=job: progress.hear(job, heard))  # type: ignore[misc]
                queue.done(job)
    return [TrainedRun(store.open(experiment.cell)) for experiment in experiments]


def cores() -> int:
    """The processor cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _divide(experiment: Experiment, workers: int, device: str) -> list[list[int]]:
    """Members in consecutive chunks: enough to occupy the workers, and small enough for the memory."""
    count = len(experiment.members)
    if device == "cpu":
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // workers
    else:
        memory = torch.cuda.get_device_properties(device).total_memory
    fitting = max(1, int(_MEMORY_SHARE * memory) // memory_per_member(experiment))
    chunks = max(min(workers, count), -(-count // fitting))
    ends = [count * (index + 1) // chunks for index in range(chunks)]
    return [list(range(start, end)) for start, end in zip([0, *ends], ends, strict=False)]


def _plan(division: list[list[int]], workers: int, jobs: int, device: str) -> dict[str, Any]:
    """What is recorded of how a run is divided: all that could change the last bits of its numbers."""
    threads = max(1, workers // jobs) if device == "cpu" else torch.get_num_threads()
    return {"chunks": division, "threads": threads}


def _importable(experiment: Experiment) -> bool:
    """Whether another process can import what is trained: not what was defined in a notebook or at a prompt."""
    parts = (experiment.task, experiment.model)
    return hasattr(sys.modules["__main__"], "__file__") or all(type(one).__module__ != "__main__" for one in parts)


class _Progress:
    """Adds up the progress of all jobs."""

    def __init__(self, total: int, cells: int, report: Callable[[Status], None] | None) -> None:
        self.status = Status(total, cells=cells)
        self._report = report
        self._done: dict[tuple[str, str], int] = {}

    def say(self, label: str) -> None:
        """Shows what is going on."""
        self.status.label = label
        if self._report is not None:
            self._report(self.status)

    def hear(self, job: Job, progress: Progress) -> None:
        """Takes one job's progress."""
        if progress.metrics:
            self.status.metrics = dict(progress.metrics)
        self.count(job, progress.step)

    def count(self, job: Job, step: int) -> None:
        """Takes how much of a job is done."""
        key = job.chunk.address, job.chunk.path.name
        work = step * len(job.experiment.members) * job.work_per_step
        if key not in self._done:
            self.status.before += work
        self._done[key] = max(work, self._done.get(key, 0))
        self.status.done = sum(self._done.values())
        self.say(job.experiment.cell.label)


@dataclass
class _OpenRun:
    """A run that is open for writing, and the jobs that are not done."""

    experiment: Experiment
    directory: RunDirectory
    chunks: list[list[int]]
    left: int


@dataclass
class _Work:
    """All that is left to train, run by run: opened for its first job, finished and closed after its last.

    So a study of thousands of runs never holds more than a few files, and a killed one keeps what is finished.
    """

    store: Store
    todo: dict[str, Experiment]
    plans: dict[str, dict[str, Any]]
    work: dict[str, int]
    device: str
    execution: ExecutionName
    keep_every: float
    stack: ExitStack
    progress: _Progress
    opened: dict[str, _OpenRun] = field(default_factory=dict)

    def jobs(self) -> Iterator[Job]:
        """The jobs to train, the longest runs first, so that no worker is left with much to do at the end."""
        for address, experiment in sorted(self.todo.items(), key=lambda one: -self.work[one[0]] * one[1].member_steps):
            directory = self.stack.enter_context(self.store.open(experiment.cell))
            if directory.finished:  # by another process, just now
                continue
            plan = directory.plan(self.plans[address])
            jobs = [
                Job(
                    experiment.take(range(members[0], members[-1] + 1)),
                    directory.chunk(index),
                    self.device,
                    self.execution,
                    plan["threads"],
                    self.keep_every,
                    self.work[address],
                    None
                    if experiment.start is None
                    else (self.store.root / experiment.start.cell.address, range(members[0], members[-1] + 1)),
                )
                for index, members in enumerate(plan["chunks"])
            ]
            for job in jobs:
                job.chunk.wait = _ORPHANS_LEAVE
            self.opened[address] = _OpenRun(experiment, directory, plan["chunks"], len(jobs))
            for job in jobs:
                if job.chunk.finished:
                    self.done(job)
                else:
                    yield job

    def done(self, job: Job) -> None:
        """Takes note of a finished job; after the last of a run, the run is put together."""
        self.progress.count(job, job.experiment.steps)
        run = self.opened[job.chunk.address]
        run.left -= 1
        if run.left == 0:
            merge(run.directory, run.experiment, run.chunks)
            run.directory.__exit__()
            del self.opened[job.chunk.address]
            self.progress.status.cells_done += 1
