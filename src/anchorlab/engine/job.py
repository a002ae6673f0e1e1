"""Jobs: some members of one experiment, or several tiny runs at once, trained by one process at a time."""

import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path

import torch

from anchorlab.engine.plan import Plan
from anchorlab.errors import DamagedChunkError, StoreError
from anchorlab.models import denormals_as_zero
from anchorlab.runs import ChunkDirectory, Run, Store
from anchorlab.runs.environment import environment, processor
from anchorlab.training import ChunkKeeper, Experiment, Progress, TrainedRun, fit
from anchorlab.training.evaluation import Row
from anchorlab.training.experiment import ARITHMETIC
from anchorlab.training.joined import Places, fit_joined, join, share_a_pass
from anchorlab.training.trainer import ExecutionName, Trained, TrainingState


@dataclass(frozen=True)
class Job:
    """Some members of one experiment, the chunk that keeps them, and how to train them.

    Fields
        experiment: the experiment with these members only
        chunk: where states and results are kept
        device, execution, keep_every: as for `fit`
        threads: the number of threads that torch uses, which can change the last bits of a result
        start: the run whose final weights these members start from, and the members' indices there
        places: the members' places in a pass of fixed size that other runs share; None if they are trained alone
    """

    experiment: Experiment
    chunk: ChunkDirectory
    device: str
    execution: ExecutionName
    threads: int
    keep_every: float
    start: tuple[Path, range] | None = None
    places: Places | None = None

    def __str__(self) -> str:
        """Return the experiment's label and the members' seeds."""
        seeds = self.experiment.members.seeds
        return (
            f"{self.experiment.cell.label}, seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds[:10]))}"
            + (", ..." if len(seeds) > 10 else "")
        )

    @property
    def parts(self) -> "tuple[Job, ...]":
        """The jobs with one chunk each; here only this job."""
        return (self,)

    @property
    def finished(self) -> bool:
        """Whether the chunk is finished, or its whole run, which no longer has chunks."""
        return self.chunk.finished or Run(self.chunk.path.parent.parent).finished

    def train(self, report: Callable[[Progress], None]) -> None:
        """Train to the end: from the chunk's newest state, or from the first step if there is none or it is damaged."""
        if self.finished:
            return
        try:
            with self.chunk as chunk, with_threads(self.threads):
                try:
                    self._fit(chunk, report)
                except DamagedChunkError as error:
                    report(Progress(0, self.experiment.steps, note=self.restarts(error)))
                    chunk.restart()
                    self._fit(chunk, report)
        except StoreError:
            if not self.finished:  # if finished: a later attempt did it and took over the files being written
                raise

    def restarts(self, error: DamagedChunkError) -> str:
        """Return a message that the job starts over because of a damaged file."""
        return f"{error.path}: {error.problem}; {self} starts over from its first step"

    def _fit(self, chunk: ChunkDirectory, report: Callable[[Progress], None]) -> None:
        if chunk.finished:
            return
        keeper = ChunkKeeper(chunk)
        if self.places is not None:
            parts = [self.experiment], [self.places], [keeper], [keeper.load()]
            (rows,) = fit_joined(*parts, self.fitting(report))
            self.finish(rows)
            return
        start = None
        if self.start is not None:
            path, members = self.start
            start = TrainedRun(Run(path)).ensemble().select(members)
        self.finish(self.fitting(report)(self.experiment, keeper=keeper, start=start).rows)

    def fitting(self, report: Callable[[Progress], None]) -> Callable[..., Trained]:
        """Return `fit` with this job's arguments."""
        return partial(fit, device=self.device, execution=self.execution, report=report, keep_every=self.keep_every)

    def finish(self, rows: Iterable[Row]) -> None:
        """Finish the chunk: write the measured metrics to it, and where it was trained."""
        self.chunk.finish({"rows": [list(row) for row in rows], "made_by": self._made_by()})

    def _made_by(self) -> dict[str, str | None]:
        """Return the host, the device, the version of torch and the arithmetic that trained these members."""
        device = torch.cuda.get_device_name(self.device) if self.device.startswith("cuda") else processor()
        made_with = {"torch": environment()["torch"], "arithmetic": ARITHMETIC}
        return {"host": platform.node(), "device": device, **made_with}


@dataclass(frozen=True)
class JointJob(Job):
    """Jobs that are trained together. Each keeps and resumes its own chunk, so it can also be trained alone.

    Fields
        jobs: jobs whose experiments can be joined and whose places in a pass do not overlap; the other fields describe
            all of them together, except `chunk`, which is the first job's
    """

    jobs: tuple[Job, ...] = ()

    @classmethod
    def of(cls, jobs: Sequence[Job]) -> Job:
        """Return one job that trains all `jobs`; they must be `compatible`, with equal device, execution and threads.

        A single job is returned as it is.
        """
        first, *others = jobs
        if not others:
            return first
        experiment = join([job.experiment for job in jobs], _places(jobs))
        return cls(
            experiment, first.chunk, first.device, first.execution, first.threads, first.keep_every, jobs=tuple(jobs)
        )

    def __str__(self) -> str:
        return self.experiment.cell.label

    @property
    def parts(self) -> tuple[Job, ...]:
        """The jobs with one chunk each."""
        return self.jobs

    @property
    def finished(self) -> bool:
        """Whether all jobs are finished."""
        return all(job.finished for job in self.jobs)

    def train(self, report: Callable[[Progress], None]) -> None:
        """Train all jobs to the end, each from its chunk's newest state; jobs at the same step continue together.

        Errors: the first error of any job; the other jobs may then be unfinished too.
        """
        with ExitStack() as opened, with_threads(self.threads):
            found = []
            for job in self.jobs:
                if not job.finished:
                    opened.enter_context(job.chunk)
                    found.append((job, _newest(job, report)))
            for jobs, states in _equally_new(found):
                self._train_together(jobs, states, report)

    def _train_together(
        self, jobs: Sequence[Job], states: Sequence[TrainingState | None], report: Callable[[Progress], None]
    ) -> None:
        experiments = [job.experiment for job in jobs]
        keepers = [ChunkKeeper(job.chunk) for job in jobs]
        trained = fit_joined(experiments, _places(jobs), keepers, states, self.fitting(report))
        for job, rows in zip(jobs, trained, strict=True):
            job.finish(rows)


def job_of(store: Store, experiment: Experiment, plan: Plan, index: int, device: str, keep_every: float) -> Job:
    """Return the job that trains chunk `index` of an experiment's run in a store."""
    members = range(plan.chunks[index][0], plan.chunks[index][-1] + 1)
    before = experiment.start
    start = None if before is None else (store.root / before.cell.address, members)
    return Job(
        experiment.take(members),
        store.open(experiment.cell).chunk(index),
        device,
        plan.execution,
        plan.threads,
        keep_every,
        start,
        plan.places,
    )


def _newest(job: Job, report: Callable[[Progress], None]) -> TrainingState | None:
    """Return a chunk's newest state; None at its beginning. A chunk with a damaged state is restarted."""
    try:
        return ChunkKeeper(job.chunk).load()
    except DamagedChunkError as error:
        report(Progress(0, job.experiment.steps, note=job.restarts(error)))
        job.chunk.restart()
        return None


def compatible(jobs: Iterable[Job]) -> Iterator[list[Job]]:
    """Yield groups of jobs that can be trained together: their places in a pass do not overlap."""
    found: list[list[Job]] = []
    for job in jobs:
        group = next((group for group in found if all(_fits(job, other) for other in group)), None)
        if group is None:
            found.append([job])
        else:
            group.append(job)
    yield from found


def _fits(job: Job, other: Job) -> bool:
    """Return whether two jobs can share a pass, given that their experiments can be joined."""
    return share_a_pass(job.places, len(job.experiment.members), other.places, len(other.experiment.members))


def _places(jobs: Iterable[Job]) -> list[Places]:
    return [job.places for job in jobs if job.places is not None]


def _equally_new(
    found: Sequence[tuple[Job, TrainingState | None]],
) -> Iterator[tuple[list[Job], list[TrainingState | None]]]:
    """Yield groups of jobs with states of the same step and execution, and these states."""

    def key(one: tuple[Job, TrainingState | None]) -> tuple[int, str]:
        state = one[1]
        return (0, "") if state is None else (state.step, state.execution)

    for _, group in groupby(sorted(found, key=key), key):
        jobs, states = zip(*group, strict=True)
        yield list(jobs), list(states)


@contextmanager
def with_threads(count: int) -> Iterator[None]:
    """Let torch compute with `count` threads inside `with`; with one thread, denormals are flushed to zero.

    With several threads they are not: the setting would not reach the other threads, and which numbers each of them
    computes can change when a run is resumed.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        with denormals_as_zero() if count == 1 else nullcontext():
            yield
    finally:
        torch.set_num_threads(before)
