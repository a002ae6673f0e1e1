"""Train jobs by workers elsewhere that share the folder of the store."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from anchorlab.engine.backend import Done, Hear
from anchorlab.engine.job import Job
from anchorlab.engine.notes import News, forget_failure, read_failure
from anchorlab.engine.presence import anyone_at_work
from anchorlab.errors import AnchorlabError
from anchorlab.training import Progress


@dataclass(frozen=True)
class Folder:
    """Workers that were started elsewhere, `anchorlab worker STORE`, on any machine that shares the store's folder.

    Where no worker is alive, that is said after a while, and again from time to time.

    Fields
        pause: seconds between two looks at the store
        patience: seconds without a worker before that is said
        again: seconds until it is said once more
    """

    pause: float = 1.0
    patience: float = 5.0
    again: float = 600.0

    def beginning(self, store: Path) -> str:
        """Return how workers are started."""
        return f"waiting for workers: `anchorlab worker {store}`"

    def train(self, jobs: Iterator[Job], hear: Hear, done: Done) -> None:
        """Wait until workers have trained all jobs, as `Backend.train` says; those that failed are tried again."""
        left = [part for job in jobs for part in job.parts]
        for job in left:
            forget_failure(job.chunk)
        news, watch = News(), _Watch(self)
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
                watch.look(left[0], hear)
                time.sleep(self.pause)


class _Watch:
    """Says that no worker is alive, and shows it until one is."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.due, self.said = time.monotonic() + folder.patience, False

    def look(self, job: Job, hear: Hear) -> None:
        """Look for a worker; tell those who wait for a job if there has been none for a while."""
        store, now = job.chunk.path.parent.parent.parent, time.monotonic()
        if anyone_at_work(store):
            if self.said:
                hear(job, Progress(0, job.experiment.steps))
            self.due, self.said = now + self.folder.patience, False
        elif now >= self.due:
            text = f"no worker is at work in {store}"
            hear(job, Progress(0, job.experiment.steps, {}, f"{text}: start one with `anchorlab worker {store}`", text))
            self.due, self.said = now + self.folder.again, True
