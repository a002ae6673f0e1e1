"""Train jobs by workers elsewhere that share the folder of the store."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from anchorlab.engine.backend import Done, Hear
from anchorlab.engine.job import Job
from anchorlab.engine.notes import News, forget_failure, read_failure
from anchorlab.errors import AnchorlabError


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
        left = [part for job in jobs for part in job.parts]
        for job in left:
            forget_failure(job.chunk)
        news = News()
        while left:
            for job in list(left):
                reason = None if job.finished else read_failure(job.chunk)
                if reason is None and not job.finished:
                    if (progress := news.of(job.chunk)) is not None:
                        hear(job, progress)
                    continue
                left.remove(job)
                done(job, None if reason is None else AnchorlabError(reason))
            if left:
                time.sleep(self.pause)
