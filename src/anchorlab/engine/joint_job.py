"""Joint jobs: several tiny runs that are trained as one ensemble but kept separately."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby

from anchorlab.engine.job import Job, with_threads
from anchorlab.errors import DamagedChunkError
from anchorlab.training import ChunkKeeper, Progress
from anchorlab.training.joined import Places, fit_joined, join, share_a_pass
from anchorlab.training.trainer import TrainingState


@dataclass(frozen=True)
class JointJob(Job):
    """Jobs that are trained together. Each leases, keeps and resumes its own chunk, so it can also be trained alone.

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
        with ExitStack() as leases, with_threads(self.threads):
            found = []
            for job in self.jobs:
                if not job.finished:
                    leases.enter_context(job.chunk)
                    found.append((job, _newest(job, report)))
            for jobs, states in _equally_new(found):
                self._train_together(jobs, states, report)

    def _train_together(
        self, jobs: Sequence[Job], states: Sequence[TrainingState | None], report: Callable[[Progress], None]
    ) -> None:
        experiments = [job.experiment for job in jobs]
        keepers = [ChunkKeeper(job.chunk) for job in jobs]
        trained = fit_joined(
            experiments, _places(jobs), keepers, states, self.device, self.execution, report, self.keep_every
        )
        for job, rows in zip(jobs, trained, strict=True):
            job.finish(rows)


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
