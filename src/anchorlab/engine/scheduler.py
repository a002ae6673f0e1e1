"""Plan runs, divide them into pieces, let a backend train the pieces, and merge each run once its pieces are done."""

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
from anchorlab.engine.progress_files import forget_failure
from anchorlab.engine.tally import Tally
from anchorlab.errors import DamagedChunkError, IncompleteError, InUseError
from anchorlab.progress import Status
from anchorlab.runs import Run, Store
from anchorlab.runs.atomic_files import damaged
from anchorlab.runs.lease import LEASE
from anchorlab.runs.plugins import is_module_name, note_modules
from anchorlab.training import Experiment, merge
from anchorlab.training.joined import MOST_TOGETHER, Places
from anchorlab.training.trainer import ExecutionName

_MOST_THREADS = 4096
_PAUSE = 0.5  # seconds between two checks of a piece that another process works on


Failure = tuple[str, Exception]
"""The name of a piece or run that failed, and its error."""


@dataclass
class Plan:
    """How a run is trained, as recorded with the run: everything that can change the last bits of its results.

    Fields
        chunks: the members of each chunk
        threads: the number of threads for each chunk
        execution: how the members are executed, as for `fit`
        places: the members' places in a shared pass, if the run can be trained with other runs; else None
    """

    chunks: list[list[int]]
    threads: int
    execution: ExecutionName
    places: Places | None = None

    def is_of(self, members: int) -> bool:
        """Return whether this is a valid plan for a run of `members` members; use it for plans read from a file."""
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
        """Parse the plan that a run of `members` members has recorded; fields that older plans lack come from `asked`.

        Errors: `StoreError` if `recorded` is not a valid plan for the run.
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
        of: the plan of each experiment, by address
        together: the addresses in groups; the experiments of a group are trained as one ensemble
    """

    of: dict[str, Plan]
    together: list[list[str]]


@dataclass
class _Open:
    """A run in training: its plan, the number of pieces left, and whether a piece has failed."""

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
    """Return the job that trains chunk `index` of an experiment's run in a store."""
    members = range(plan.chunks[index][0], plan.chunks[index][-1] + 1)
    chunk = store.open(experiment.cell, lease=lease).chunk(index)
    before = experiment.start
    start = None if before is None else (store.root / before.cell.address, members)
    own = experiment.take(members)
    return Job(own, chunk, device, plan.execution, plan.threads, keep_every, start, plan.places)


def finish(store: Store, experiment: Experiment, plan: Plan, lease: float = LEASE) -> None:
    """Merge a run whose chunks are all finished, unless another process has merged it. Errors: as `merge`."""
    while True:
        with suppress(InUseError), store.open(experiment.cell, inf, lease) as directory:
            if not directory.finished:
                merge(directory, experiment, plan.chunks)
            return


class Pieces:
    """The pieces of all runs that the store lacks.

    A run is planned when its first piece is taken and merged after its last piece, so a killed study keeps its
    finished runs. If a piece fails, its run is not merged, and all other pieces go on.

    Args:
        store: where runs are kept
        todo: the experiments by address
        plans: how each experiment is trained; a run already started keeps its recorded plan
        device: where the jobs are trained
        keep_every: seconds between two kept states
        report: called with the status
        failures: earlier failures, to be reported together with new ones
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
        """Train all pieces.

        Errors: `IncompleteError` if some pieces failed; their own error if all failed alike and no run was finished.
        """
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
        """Plan all runs, clear earlier failures so that workers try again, and return how many pieces are left.

        Errors: `IncompleteError` if a run cannot be planned.
        """
        jobs = [part for job in self._planned() for part in job.parts]
        for job in jobs:
            forget_failure(job.chunk)
        if self.failures:
            raise IncompleteError(self.failures)
        return len(jobs)

    def _jobs(self) -> Iterator[Job]:
        """Yield the jobs that can be trained now: first pieces to be tried again, then pieces of further runs."""
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
        """Wait until a piece that another process works on is free or finished."""
        while all((owner := job.chunk.owner) is not None and not job.finished for job in self._again):
            self.tally.show(f"{self._again[0].experiment.cell.label}: waiting for {owner}")
            time.sleep(_PAUSE)

    def _planned(self) -> Iterator[Job]:
        """Yield all jobs, longest runs first, so that all workers finish at about the same time."""
        note_modules(self.store.root, set[str]().union(*map(_modules_of, self.todo.values())))
        work = {address: self.tally.work[address] * one.member_steps for address, one in self.todo.items()}
        for group in sorted(self.plans.together, key=lambda group: -sum(work[address] for address in group)):
            jobs = [job for address in group for job in self._of_run(address)]
            yield from map(JointJob.of, compatible(jobs))

    def _of_run(self, address: str) -> list[Job]:
        """Plan a run, and return its unfinished jobs."""
        experiment = self.todo[address]
        try:
            with self.store.open(experiment.cell, wait=LEASE) as directory:
                if directory.finished:  # by another process meanwhile
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
        """Record the end of a job: count it, queue it again, or note its failure; merge the run after its last job."""
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
        """Record the end of a joint job for each part; after an error, the parts are tried one by one."""
        for part in job.parts:
            if error is None:
                self._done(part)
            else:
                self._again.append(part)

    def _merge(self, address: str, run: _Open) -> None:
        """Merge a run; if a chunk turns out to be damaged, queue it to be trained again."""
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
            restarted = [job for job in jobs if not job.finished]  # by another process, which found the damage first
            if not restarted:
                self.failures.append((experiment.cell.label, error))
            run.left = len(restarted)
            self._again.extend(restarted)
        else:
            self.tally.status.cells_done += 1


def _modules_of(experiment: Experiment) -> set[str]:
    """Return the user modules that register an experiment's task and model, without a script that is being run."""
    names = {type(experiment.task).__module__, type(experiment.model).__module__}
    return {name for name in names if is_module_name(name) and name.partition(".")[0] not in ("anchorlab", "__main__")}
