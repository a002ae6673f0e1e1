"""Sum the progress of a set of experiments over its jobs."""

from collections.abc import Callable, Mapping

from anchorlab.engine.job import Job
from anchorlab.progress import Status
from anchorlab.training import Experiment, Progress, work_per_step


class Tally:
    """Sums the progress of all jobs, and reports it.

    Args:
        todo: the experiments by address
        report: called with the status
    """

    def __init__(self, todo: Mapping[str, Experiment], report: Callable[[Status], None] | None) -> None:
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
