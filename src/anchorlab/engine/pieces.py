"""The pieces of a set of experiments: planned run by run, trained by a backend, merged when a run has all of them."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple, get_args

from anchorlab.engine.backend import Backend
from anchorlab.engine.job import Job
from anchorlab.engine.joint_job import JointJob, compatible
from anchorlab.engine.notes import forget_failure
from anchorlab.engine.tally import Tally
from anchorlab.errors import DamagedChunkError, IncompleteError, InUseError
from anchorlab.progress import Status
from anchorlab.runs import Run, Store
from anchorlab.runs.claim import LEASE
from anchorlab.runs.files import damaged
from anchorlab.runs.plugins import note_modules
from anchorlab.training import Experiment, merge
from anchorlab.training.joined import MOST_TOGETHER, Places
from anchorlab.training.plugins import modules_of
from anchorlab.training.trainer import ExecutionName

_MOST_THREADS = 4096
_PAUSE = 0.5  # seconds between two looks at a piece that another process works on


Failure = tuple[str, Exception]
"""A piece that failed, and why."""


@dataclass
class Plan:
    """How a run is trained, as it records it: everything that can change the last bits of its results.

    Fields
        chunks: the members of each chunk
        threads: the number of threads of each
        execution: the name of the execution
        places: where its members lie in the pass that computes them, if it can be trained with other runs
    """

    chunks: list[list[int]]
    threads: int
    execution: ExecutionName
    places: Places | None = None

    def is_of(self, members: int) -> bool:
        """Return whether this is a plan of a run of so many members; one that was read can say anything."""
        numbers = [member for chunk in self.chunks for member in chunk]
        if not all(type(one) is int for one in (*numbers, self.threads, *(self.places or ()))):
            return False
        if numbers != list(range(members)) or not all(self.chunks) or not 0 < self.threads <= _MOST_THREADS:
            return False
        if self.execution not in get_args(ExecutionName):
            return False
        if self.places is None:
            return True
        joined = len(self.chunks) == 1 and self.execution == "mapped" and self.threads == 1
        return joined and 0 <= self.places.first <= self.places.of - members <= MOST_TOGETHER - members

    @classmethod
    def read(cls, run: Run, recorded: Any, members: int, asked: "Plan | None" = None) -> "Plan":
        """Return the plan that a run of so many members has recorded; what an older one lacks is as it is `asked`.

        Errors: `StoreError` for what is no plan of that run.
        """
        lacking = {"execution": "auto"} if asked is None else {**vars(asked), "places": None}
        try:
            said = {**lacking, **recorded}
            if said.get("places") is not None:
                said["places"] = Places(*said["places"])  # a list in the file
            plan = cls(**said)
            if plan.is_of(members):
                return plan
        except (TypeError, ValueError):
            pass
        raise damaged(run.plan_path, "damaged: is no plan of this run", run.address)


class Plans(NamedTuple):
    """How experiments are trained.

    Fields
        of: the plan of each, by its address
        together: the addresses in groups, each trained as one ensemble
    """

    of: dict[str, Plan]
    together: list[list[str]]


@dataclass
class _Open:
    """A run of which pieces are left: its plan, their number, and whether one has failed."""

    plan: Plan
    left: int
    failed: bool = False


def job_of(
    store: Store,
    experiment: Experiment,
    plan: Plan,
    index: int,
    device: str,
    keep_every: float,
    lease: float = LEASE,
) -> Job:
    """Return the job of a chunk of an experiment's run in a store."""
    members = range(plan.chunks[index][0], plan.chunks[index][-1] + 1)
    chunk = store.open(experiment.cell, lease=lease).chunk(index)
    before = experiment.start
    start = None if before is None else (store.root / before.cell.address, members)
    own = experiment.take(members)
    return Job(own, chunk, device, plan.execution, plan.threads, keep_every, start, plan.places)


def finish(store: Store, experiment: Experiment, plan: Plan, lease: float = LEASE) -> None:
    """Merge a run whose chunks are all finished, unless another process has. Errors: those of `merge`."""
    while True:
        with suppress(InUseError), store.open(experiment.cell, inf, lease) as directory:
            if not directory.finished:
                merge(directory, experiment, plan.chunks)
            return


class Pieces:
    """The pieces of all runs that the store lacks.

    A run is planned when its first piece is taken, and merged after its last: a study that is killed keeps its
    finished runs. A piece that fails is set aside with its run, and all others go on.

    Args:
        store: where runs are kept
        todo: the experiments by address
        plans: how each would be trained; a run that has begun goes on as it was planned then
        device: where the jobs are trained
        keep_every: seconds between two states
        report: called with the status
        failures: what has failed before
    """

    def __init__(
        self,
        store: Store,
        todo: Mapping[str, Experiment],
        plans: Plans,
        device: str,
        keep_every: float,
        report: Callable[[Status], None] | None,
        failures: Iterable[Failure] = (),
    ) -> None:
        self.store, self.todo, self.plans, self.device, self.keep_every = store, todo, plans, device, keep_every
        self.tally = Tally(todo, report)
        self.failures = list(failures)
        self._runs: dict[str, _Open] = {}
        self._again: deque[Job] = deque()
        self._new = self._planned()

    def train(self, backend: Backend) -> None:
        """Train all pieces. Errors: `IncompleteError` if some failed; the first one's own error if all failed alike."""
        while True:
            backend.train(self._jobs(), self.tally.update, self._done)
            if not self._again:
                break
            self._wait()
        if self.failures:
            if self.tally.status.cells_done == 0 and len({str(error) for _, error in self.failures}) == 1:
                raise self.failures[0][1]
            raise IncompleteError(self.failures) from self.failures[0][1]

    def plan(self) -> int:
        """Plan all runs, let workers try again what has failed, and return how many pieces are left."""
        jobs = [part for job in self._planned() for part in job.parts]
        for job in jobs:
            forget_failure(job.chunk)
        if self.failures:
            raise IncompleteError(self.failures)
        return len(jobs)

    def _jobs(self) -> Iterator[Job]:
        """Yield what can be trained now: pieces to be done again, then those of further runs."""
        for _ in range(len(self._again)):
            job = self._again.popleft()
            if job.finished:
                self._done(job)
            elif job.chunk.owner is None:
                yield job
            else:
                self._again.append(job)
        yield from self._new

    def _wait(self) -> None:
        """Wait until one of the pieces that other processes work on can be trained, or is finished."""
        while all((owner := job.chunk.owner) is not None and not job.finished for job in self._again):
            self.tally.show(f"{self._again[0].experiment.cell.label}: waiting for {owner}")
            time.sleep(_PAUSE)

    def _planned(self) -> Iterator[Job]:
        """Yield all jobs, those of the longest runs first, so that all workers finish at about the same time."""
        note_modules(self.store.root, set[str]().union(*map(modules_of, self.todo.values())))
        work = {address: self.tally.work[address] * one.member_steps for address, one in self.todo.items()}
        for group in sorted(self.plans.together, key=lambda group: -sum(work[address] for address in group)):
            jobs = [job for address in group for job in self._of_run(address)]
            yield from map(JointJob.of, compatible(jobs))

    def _of_run(self, address: str) -> list[Job]:
        """Plan a run, and return its unfinished jobs."""
        experiment = self.todo[address]
        try:
            with self.store.open(experiment.cell, wait=LEASE) as directory:
                if directory.finished:  # by another process in the meantime
                    self.tally.status.cells_done += 1
                    return []
                asked = self.plans.of[address]
                plan = Plan.read(directory, directory.plan(vars(asked)), len(experiment.members), asked)
        except Exception as error:  # noqa: BLE001 - the other runs go on
            self.failures.append((experiment.cell.label, error))
            return []
        jobs = [self._job(experiment, plan, index) for index in range(len(plan.chunks))]
        self._runs[address] = _Open(plan, len(jobs))
        left = []
        for job in jobs:
            if job.finished:
                self._done(job)
            else:
                left.append(job)
        return left

    def _job(self, experiment: Experiment, plan: Plan, index: int) -> Job:
        return job_of(self.store, experiment, plan, index, self.device, self.keep_every)

    def _done(self, job: Job, error: Exception | None = None) -> None:
        """Count a job that has ended; after the last one of a run, merge the run."""
        if len(job.parts) > 1:
            self._ended(job, error)
            return
        if isinstance(error, InUseError):
            self._again.append(job)
            return
        run = self._runs[job.chunk.address]
        run.left -= 1
        if error is not None:
            run.failed = True
            self.failures.append((str(job), error))
            return
        self.tally.count(job, job.experiment.steps)
        if run.left == 0 and not run.failed:
            self._merge(job.chunk.address, run)

    def _ended(self, job: Job, error: Exception | None) -> None:
        """Count the parts of a joint job; after an error, each is tried by itself, and may have an error of its own."""
        for part in job.parts:
            if error is None:
                self._done(part)
            else:
                self._again.append(part)

    def _merge(self, address: str, run: _Open) -> None:
        """Merge a run; a chunk that turns out to be damaged is trained again."""
        experiment = self.todo[address]
        try:
            finish(self.store, experiment, run.plan)
        except DamagedChunkError as error:
            jobs = [self._job(experiment, run.plan, index) for index in range(len(run.plan.chunks))]
            (job,) = (one for one in jobs if one.chunk.contains(error.path))
            with job.chunk as chunk:
                chunk.restart()
            run.left = 1
            self._again.append(job)
            self.tally.show(experiment.cell.label, job.restarts(error))
        except Exception as error:  # noqa: BLE001 - the other runs go on
            jobs = [self._job(experiment, run.plan, index) for index in range(len(run.plan.chunks))]
            restarted = [job for job in jobs if not job.finished]  # by a process that found them damaged first
            if not restarted:
                self.failures.append((experiment.cell.label, error))
            run.left = len(restarted)
            self._again.extend(restarted)
        else:
            self.tally.status.cells_done += 1
