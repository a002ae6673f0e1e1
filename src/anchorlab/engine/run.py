"""Running experiments: in this process, or in several at once; what is already in the store is not run again."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch

from anchorlab.errors import AnchorlabError, SpecError
from anchorlab.runs import ChunkDirectory, RunDirectory, Store
from anchorlab.training import ChunkKeeper, Experiment, Progress, TrainedRun, fit, memory_per_member, merge
from anchorlab.training.trainer import ExecutionName, check_device

_MEMORY_SHARE = 0.5  # of the machine's memory that one run's members may take together


@dataclass
class Status:
    """How far a set of experiments has come, for progress bars: member-steps done of all, and the newest metrics."""

    total: int
    done: int = 0
    label: str = ""
    cells: int = 0
    cells_done: int = 0
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class _Job:
    """One chunk to train: some members of one experiment."""

    experiment: Experiment
    chunk: ChunkDirectory
    device: str
    execution: ExecutionName

    @property
    def member_steps(self) -> int:
        return self.experiment.steps * len(self.experiment.members)


def run(
    experiments: Sequence[Experiment],
    store: Store | None = None,
    workers: int | None = None,
    device: str = "cpu",
    execution: ExecutionName = "auto",
    report: Callable[[Status], None] | None = None,
) -> list[TrainedRun]:
    """Trains what the store does not hold yet, and returns the finished run of every experiment.

    On a CPU the members of an experiment are divided over `workers` processes of one thread each (None: one for every
    core); on CUDA they stay together in this process. A run that was killed goes on from its last state, on the plan it
    began with. A result does not depend on the division: equal in float64, within rounding in float32.

    Errors: `SpecError` for a device that is not there; `StoreError` for a damaged store, or a run that another process
    is writing.
    """
    store = store or Store()
    if workers is None:
        workers = 1 if device != "cpu" else cores()
    if workers < 1:
        raise SpecError("workers", f"{workers} is not a number of processes", "give 1 or more")
    check_device(device)
    with ExitStack() as stack:
        todo: list[tuple[RunDirectory, list[list[int]]]] = []
        jobs: list[_Job] = []
        seen: set[str] = set()
        for experiment in experiments:
            cell = experiment.cell
            if cell.address in seen or cell in store:
                continue
            seen.add(cell.address)
            directory = stack.enter_context(store.open(cell))
            if directory.finished:
                continue
            plan: list[list[int]] = directory.plan(_plan(experiment, workers, device))
            todo.append((directory, plan))
            for index, members in enumerate(plan):
                chunk = directory.chunk(index)
                if not chunk.finished:
                    jobs.append(_Job(experiment.take(range(members[0], members[-1] + 1)), chunk, device, execution))
        status = Status(sum(job.member_steps for job in jobs), cells=len(todo))
        workers = min(workers, len(jobs))
        if report is not None and workers > 1:
            status.label = f"starting {workers} processes"
            report(status)
        _run_jobs(jobs, workers, _Reporter(status, report))
        for directory, plan in todo:
            merge(directory, plan)
    return [TrainedRun(store.open(experiment.cell)) for experiment in experiments]


def cores() -> int:
    """The processor cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _plan(experiment: Experiment, workers: int, device: str) -> list[list[int]]:
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


class _Reporter:
    """Adds up the progress of all jobs."""

    def __init__(self, status: Status, report: Callable[[Status], None] | None) -> None:
        self.status, self._report = status, report
        self._done: dict[int, int] = {}

    def hear(self, index: int, job: _Job, progress: Progress) -> None:
        """Takes one job's progress."""
        self._done[index] = progress.step * len(job.experiment.members)
        self.status.done = sum(self._done.values())
        self.status.label = job.experiment.cell.label
        self.status.metrics = dict(progress.metrics)
        if self._report is not None:
            self._report(self.status)


def _run_jobs(jobs: Sequence[_Job], workers: int, reporter: _Reporter) -> None:
    if workers <= 1:
        for index, job in enumerate(jobs):
            _train(job, lambda progress, index=index, job=job: reporter.hear(index, job, progress))  # type: ignore[misc]
        return
    context = multiprocessing.get_context("spawn")
    # the longest first, so that no worker is left with much to do at the end
    order = sorted(range(len(jobs)), key=lambda index: -jobs[index].member_steps)
    heard: Any = context.Queue()
    with ProcessPoolExecutor(workers, context, _start_worker, (heard, os.getpid())) as pool:
        waiting: dict[Future[None], int] = {pool.submit(_train_in_worker, index, jobs[index]): index for index in order}
        try:
            while waiting:
                done, _ = wait(waiting, timeout=0.2, return_when=FIRST_COMPLETED)
                while not heard.empty():
                    index, progress = heard.get()
                    reporter.hear(index, jobs[index], progress)
                for future in done:
                    waiting.pop(future)
                    future.result()
        except BrokenProcessPool:
            raise AnchorlabError(
                "a training process was killed, perhaps for want of memory; run again with fewer workers to go on"
            ) from None
        except BaseException:
            for process in list(pool._processes.values()):
                process.terminate()
            raise


_heard: Any = None


def _start_worker(heard: Any, parent: int) -> None:
    global _heard
    _heard = heard
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted too, and ends its workers
    torch.set_num_threads(1)
    threading.Thread(target=_leave_with, args=(parent,), daemon=True).start()


def _leave_with(parent: int) -> None:
    """Ends this process once its parent is gone, so that a killed training leaves nothing running."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def _train_in_worker(index: int, job: _Job) -> None:
    _train(job, lambda progress: _heard.put((index, progress)))


def _train(job: _Job, report: Callable[[Progress], None]) -> None:
    with job.chunk as chunk:
        if chunk.finished:
            return
        trained = fit(job.experiment, job.device, job.execution, ChunkKeeper(chunk), report)
        chunk.finish({"rows": [list(row) for row in trained.rows]})
