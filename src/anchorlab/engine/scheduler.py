"""Plan runs, divide them into pieces, let a backend train the pieces, and merge each run once its pieces are done."""

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import inf

from anchorlab.engine.backend import Backend
from anchorlab.engine.job import Job, JointJob, compatible
from anchorlab.engine.planning import Plan, Plans
from anchorlab.engine.progress_files import forget_failure
from anchorlab.errors import DamagedChunkError, IncompleteError, InUseError
from anchorlab.progress import Report, Status
from anchorlab.runs import Store
from anchorlab.runs.lease import LEASE
from anchorlab.runs.plugins import is_module_name, note_modules
from anchorlab.training import Experiment, Progress, merge, work_per_step

_PAUSE = 0.5  # seconds between two checks of a piece that another process works on


Failure = tuple[str, Exception]
"""The name of a piece or run that failed, and its error."""


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


def restarted(jobs: Iterable[Job], error: DamagedChunkError) -> Job:
    """Restart the chunk that contains the damaged file, and return its job."""
    (job,) = (one for one in jobs if one.chunk.contains(error.path))
    with job.chunk as chunk:
        chunk.restart()
    return job


class Tally:
    """Sums the progress of all jobs, and reports it.

    Args:
        todo: the experiments by address
        report: called with the status
    """

    def __init__(self, todo: Mapping[str, Experiment], report: Report | None) -> None:
        self.work = {address: work_per_step(one) for address, one in todo.items()}
        total = sum(self.work[address] * one.member_steps for address, one in todo.items())
        self.status = Status(total, cells=len(todo))
        self._report = report
        self._done: dict[tuple[str, str], int] = {}

    def show(self, label: str, note: str = "") -> None:
        """Report the status with a new label and a note for the user."""
        self.status.label, self.status.note = label, note
        if self._report is not None:
            self._report(self.status)

    def update(self, job: Job, progress: Progress) -> None:
        """Count a job's progress and keep its metrics; show its note or waiting message instead if it has one."""
        if progress.metrics:
            self.status.metrics = dict(progress.metrics)
        if progress.note or progress.waiting:
            self.show(progress.waiting or job.experiment.cell.label, progress.note)
        else:
            self.count(job, progress.step)

    def count(self, job: Job, step: int) -> None:
        """Count the first `step` steps of a job as done, and report the status.

        The steps in a chunk's first report were resumed from a kept state, so they also count in `Status.before`.
        """
        for part in job.parts:
            key = part.chunk.address, part.chunk.path.name
            work = step * len(part.experiment.members) * self.work[part.chunk.address]
            if key not in self._done:
                self.status.before += work
            self._done[key] = max(work, self._done.get(key, 0))
        self.status.done = sum(self._done.values())
        self.show(job.experiment.cell.label)


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
        report: Report | None,
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
        jobs = self._all_jobs(experiment, plan)
        self._runs[address] = _Open(plan, len(jobs))
        left = []
        for job in jobs:
            if job.finished:
                self._done(job)
            else:
                left.append(job)
        return left

    def _all_jobs(self, experiment: Experiment, plan: Plan) -> list[Job]:
        chunks = range(len(plan.chunks))
        return [job_of(self.store, experiment, plan, index, self.device, self.keep_every) for index in chunks]

    def _done(self, job: Job, error: Exception | None = None) -> None:
        """Record the end of a job: count it, queue it again, or note its failure; merge the run after its last job."""
        if isinstance(error, InUseError) or (error is not None and len(job.parts) > 1):
            self._again.extend(job.parts)  # to be tried one by one
            return
        if len(job.parts) > 1:
            for part in job.parts:
                self._done(part)
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

    def _merge(self, address: str, run: _Open) -> None:
        """Merge a run; if a chunk turns out to be damaged, queue it to be trained again."""
        experiment = self.todo[address]
        try:
            finish(self.store, experiment, run.plan)
        except DamagedChunkError as error:
            job = restarted(self._all_jobs(experiment, run.plan), error)
            run.left = 1
            self._again.append(job)
            self.tally.show(experiment.cell.label, job.restarts(error))
        except Exception as error:  # noqa: BLE001 - the other runs go on
            jobs = self._all_jobs(experiment, run.plan)
            left = [job for job in jobs if not job.finished]  # restarted by another process, which found damage first
            if not left:
                self.failures.append((experiment.cell.label, error))
            run.left = len(left)
            self._again.extend(left)
        else:
            self.tally.status.cells_done += 1


def _modules_of(experiment: Experiment) -> set[str]:
    """Return the user modules that register an experiment's task and model, without a script that is being run."""
    names = {type(experiment.task).__module__, type(experiment.model).__module__}
    return {name for name in names if is_module_name(name) and name.partition(".")[0] not in ("anchorlab", "__main__")}
