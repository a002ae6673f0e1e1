"""Joint jobs: several tiny runs, trained as one ensemble and kept each by itself."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby

from anchorlab.engine.job import Job, with_threads
from anchorlab.training import ChunkKeeper, Progress, fit
from anchorlab.training.joined import JoinedKeeper, divided, join, shares
from anchorlab.training.trainer import TrainingState


@dataclass(frozen=True)
class JointJob(Job):
    """Jobs that are trained together. Each claims, keeps and resumes its own chunk, so each can be trained alone too.

    Fields
        jobs: of experiments that can be joined; the other fields describe them together
    """

    jobs: tuple[Job, ...] = ()

    @classmethod
    def of(cls, jobs: Sequence[Job]) -> Job:
        """Return the job that trains all of these, which have the same device, execution and threads."""
        first, *others = jobs
        if not others:
            return first
        experiment = join([job.experiment for job in jobs])
        return cls(
            experiment, first.chunk, first.device, first.execution, first.threads, first.keep_every, jobs=tuple(jobs)
        )

    def __str__(self) -> str:
        return self.experiment.cell.label

    @property
    def parts(self) -> tuple[Job, ...]:
        """The jobs of single chunks."""
        return self.jobs

    @property
    def finished(self) -> bool:
        """Whether all jobs are finished."""
        return all(job.finished for job in self.jobs)

    def train(self, report: Callable[[Progress], None]) -> None:
        """Train all jobs to the end, each from its chunk's newest state; those with equally new ones go on together.

        Errors: the first one of any job, after which the others may be unfinished too.
        """
        with ExitStack() as claims, with_threads(self.threads):
            found = []
            for job in self.jobs:
                if not job.finished:
                    claims.enter_context(job.chunk)
                    found.append((job, ChunkKeeper(job.chunk).load()))
            for jobs, states in _equally_new(found):
                self._train_together(jobs, states, report)

    def _train_together(
        self, jobs: Sequence[Job], states: Sequence[TrainingState | None], report: Callable[[Progress], None]
    ) -> None:
        experiments = [job.experiment for job in jobs]
        keeper = JoinedKeeper([ChunkKeeper(job.chunk) for job in jobs], experiments, states)
        trained = fit(join(experiments), self.device, self.execution, keeper, report, self.keep_every)
        for job, rows in zip(jobs, divided(trained.rows, shares(experiments)), strict=True):
            job.finish(rows)


def _equally_new(
    found: Sequence[tuple[Job, TrainingState | None]],
) -> Iterator[tuple[list[Job], list[TrainingState | None]]]:
    """Yield jobs whose states are of the same step and execution, with these states."""

    def key(one: tuple[Job, TrainingState | None]) -> tuple[int, str]:
        state = one[1]
        return (0, "") if state is None else (state.step, state.execution)

    for _, group in groupby(sorted(found, key=key), key):
        jobs, states = zip(*group, strict=True)
        yield list(jobs), list(states)
