"""Train jobs by workers elsewhere that share the folder of the store."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from anchorlab.engine.backend import Done, Hear
from anchorlab.engine.job import Job
from anchorlab.engine.notes import forget_failure, read_failure, read_progress
from anchorlab.errors import AnchorlabError
from anchorlab.training import Progress


@dataclass(frozen=True)
class Folder:
    """Workers that were started elsewhere, `anchorlab worker STORE`, on any machine that shares the store's folder.

    Fields
        pause: seconds between two looks at the store
    """

    pause: float = 1.0

    def beginning(self, store: Path) -> str:
        """Return how workers are started."""
        return f"waiting for workers: `anchorlab worker {store}`"

    def train(self, jobs: Iterator[Job], hear: Hear, done: Done) -> None:
        """Wait until workers have trained all jobs, as `Backend.train` says; those that failed are tried again."""
        left = list(jobs)
        for job in left:
            forget_failure(job.chunk)
        told: dict[str, Progress] = {}
        while left:
            for job in list(left):
                reason = None if job.finished else read_failure(job.chunk)
                if reason is None and not job.finished:
                    _tell(job, hear, told)
                    continue
                left.remove(job)
                done(job, None if reason is None else AnchorlabError(reason))
            if left:
                time.sleep(self.pause)


def _tell(job: Job, hear: Hear, told: dict[str, Progress]) -> None:
    """Tell of a job's progress, if there is any news."""
    key = str(job.chunk.path)
    progress = read_progress(job.chunk)
    if progress is not None and progress != told.get(key):
        told[key] = progress
        hear(job, progress)
