"""Run experiments in this process or in several at once, unless the store already contains them."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import torch

from anchorlab.engine.job import Job
from anchorlab.engine.processes import train_in_processes
from anchorlab.errors import SpecError, StoreError
from anchorlab.progress import Status
from anchorlab.runs import ChunkDirectory, RunDirectory, Store
from anchorlab.spec import unknown_name
from anchorlab.training import Experiment, Progress, TrainedRun, memory_per_member, merge, work_per_step
from anchorlab.training.cost import estimated_seconds
from anchorlab.training.trainer import ExecutionName, check_device

_MEMORY_SHARE = 0.5  # of the machine's memory, for the members of one run
_ORPHANS_EXIT = 10.0  # seconds within which the workers of a killed process notice its end and release their chunks
_PROCESSES_PAY_AFTER = 30.0  # seconds of work on one core; for less, starting processes takes longer than it saves


def run(
    experiments: Sequence[Experiment],
    store: Store | str | Path | None = None,
    workers: int | None = None,
    device: str = "cpu",
    execution: ExecutionName = "auto",
    report: Callable[[Status], None] | None = None,
    keep_every: float = 20.0,
) -> list[TrainedRun]:
    """Train the experiments that the store does not contain yet.

    A run that was killed resumes from its last state, with its original chunks, and ends with the same bytes as one
    that was not. Results do not depend on the number of workers: they are equal in float64 and agree within
    rounding in float32.

    Args:
        experiments: what to train; one that is given twice is trained once
        store: where runs are kept, a store or its directory; `Store()` when None
        workers: the number of processes that share the members on a CPU. None chooses: this process alone for work of
            less than about half a minute, else one process per core. Each computes with one thread, or with more if
            there are fewer jobs than workers. On CUDA all members are trained together in this process.
        device: `cpu` or `cuda`
        execution: as for `fit`
        report: called with the status a few times per second
        keep_every: seconds between two kept states

    Returns: the finished run of each experiment.

    Errors: `SpecError` for a device or an execution that does not exist; `StoreError` for a damaged store, or a run
    that another process is writing; `AnchorlabError` if a process dies.
    """
    store = Store.of(store)
    if execution not in get_args(ExecutionName):
        raise unknown_name("execution", str(execution), get_args(ExecutionName), "execution")
    if starts := [one.start for one in experiments if one.start is not None and one.cell not in store]:
        run(starts, store, workers, device, execution, report, keep_every)
    device = "cpu" if check_device(device).type == "cpu" else device
    if workers is not None and workers < 1:
        raise SpecError("workers", f"{workers} is not a number of processes", "give 1 or more")
    todo = {one.cell.address: one for one in experiments if one.cell not in store}
    for experiment in experiments:
        if experiment.cell.address not in todo and (problems := store.open(experiment.cell).problems()):
            raise StoreError(problems[0])
    workers = workers or _choose_workers(list(todo.values()), device)
    divisions = {address: _divide(one, workers, device) for address, one in todo.items()}
    count = sum(map(len, divisions.values()))
    plans = {address: _plan(division, workers, count, device) for address, division in divisions.items()}
    work = {address: work_per_step(one) for address, one in todo.items()}
    progress = _Progress(sum(work[address] * one.member_steps for address, one in todo.items()), len(todo), report)
    with ExitStack() as stack:
        queue = _Queue(store, todo, plans, work, device, execution, keep_every, stack, progress)
        if min(workers, count) > 1 and all(_importable(one) for one in todo.values()):
            progress.show(f"starting {min(workers, count)} processes")
            train_in_processes(queue.jobs(), min(workers, count), progress.update, queue.done)
        else:
            for job in queue.jobs():
                job.train(lambda new, job=job: progress.update(job, new))  # type: ignore[misc]
                queue.done(job)
    return [TrainedRun(store.open(experiment.cell)) for experiment in experiments]


def _choose_workers(experiments: Sequence[Experiment], device: str) -> int:
    """Return the number of processes that trains the experiments fastest: one, or one per core."""
    if device != "cpu" or sum(map(estimated_seconds, experiments)) < _PROCESSES_PAY_AFTER:
        return 1
    return cores()


def cores() -> int:
    """Return the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _divide(experiment: Experiment, workers: int, device: str) -> list[list[int]]:
    """Divide members into consecutive chunks: enough to occupy the workers, each small enough for the memory."""
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
    """Return the plan that a run records: everything about its division that can change the last bits of a result."""
    threads = max(1, workers // jobs) if device == "cpu" else torch.get_num_threads()
    return {"chunks": division, "threads": threads}


def _importable(experiment: Experiment) -> bool:
    """Return whether another process can import the task and model; not if defined in a notebook or at a prompt."""
    parts = (experiment.task, experiment.model)
    return hasattr(sys.modules["__main__"], "__file__") or all(type(one).__module__ != "__main__" for one in parts)


class _Progress:
    """Add up the progress of all jobs."""

    def __init__(self, total: int, cells: int, report: Callable[[Status], None] | None) -> None:
        self.status = Status(total, cells=cells)
        self._report = report
        self._done: dict[tuple[str, str], int] = {}

    def show(self, label: str) -> None:
        """Report the status with a new label."""
        self.status.label = label
        if self._report is not None:
            self._report(self.status)

    def update(self, job: Job, progress: Progress) -> None:
        """Count a job's progress, and keep its metrics."""
        if progress.metrics:
            self.status.metrics = dict(progress.metrics)
        self.count(job, progress.step)

    def count(self, job: Job, step: int) -> None:
        """Count the first `step` steps of a job as done, and report the status."""
        key = job.chunk.address, job.chunk.path.name
        work = step * len(job.experiment.members) * job.work_per_step
        if key not in self._done:
            self.status.before += work
        self._done[key] = max(work, self._done.get(key, 0))
        self.status.done = sum(self._done.values())
        self.show(job.experiment.cell.label)


@dataclass
class _OpenRun:
    """A run that is open for writing, its division, and the number of unfinished jobs."""

    experiment: Experiment
    directory: RunDirectory
    chunks: list[list[int]]
    left: int


@dataclass
class _Queue:
    """The jobs that are left, run by run. A run is opened for its first job, and merged and closed after its last.

    So a study of thousands of runs has only a few files open, and keeps its finished runs if killed.
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
        """Yield the jobs, those of the longest runs first, so that all workers finish at about the same time."""
        for address, experiment in sorted(self.todo.items(), key=lambda one: -self.work[one[0]] * one[1].member_steps):
            directory = self.stack.enter_context(self.store.open(experiment.cell))
            if directory.finished:  # by another process in the meantime
                continue
            plan = directory.plan(self.plans[address])
            jobs = [
                self._job(experiment, directory.chunk(index), range(members[0], members[-1] + 1), plan["threads"])
                for index, members in enumerate(plan["chunks"])
            ]
            self.opened[address] = _OpenRun(experiment, directory, plan["chunks"], len(jobs))
            for job in jobs:
                if job.chunk.finished:
                    self.done(job)
                else:
                    yield job

    def _job(self, experiment: Experiment, chunk: ChunkDirectory, members: range, threads: int) -> Job:
        chunk.wait = _ORPHANS_EXIT
        before, work = experiment.start, self.work[experiment.cell.address]
        start = None if before is None else (self.store.root / before.cell.address, members)
        return Job(experiment.take(members), chunk, self.device, self.execution, threads, self.keep_every, work, start)

    def done(self, job: Job) -> None:
        """Count a finished job; after the last one of a run, merge and close the run."""
        self.progress.count(job, job.experiment.steps)
        run = self.opened[job.chunk.address]
        run.left -= 1
        if run.left == 0:
            merge(run.directory, run.experiment, run.chunks)
            run.directory.__exit__()
            del self.opened[job.chunk.address]
            self.progress.status.cells_done += 1
