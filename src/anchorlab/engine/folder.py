"""Train jobs with workers elsewhere that share the folder of the store."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from anchorlab.engine.backend import Done, Hear
from anchorlab.engine.job import Job
from anchorlab.engine.presence import anyone_at_work
from anchorlab.engine.progress_files import News, forget_failure, read_failure
from anchorlab.errors import AnchorlabError
from anchorlab.training import Progress


@dataclass(frozen=True)
class Folder:
    """Workers started with `anchorlab worker STORE` on any machine that shares the store's folder.

    If no worker is alive, a note appears after a while, and again from time to time.

    Fields
        pause: seconds between two checks of the store
        patience: seconds without a worker before the first note
        again: seconds between two notes
    """

    pause: float = 1.0
    patience: float = 5.0
    again: float = 600.0

    def beginning(self, store: Path) -> str:
        """Return a message that tells how to start workers."""
        return f"waiting for workers: `anchorlab worker {store}`"

    def train(self, jobs: Iterator[Job], hear: Hear, done: Done) -> None:
        """Wait until workers have trained all jobs, as `Backend.train` requires; clear earlier failures first."""
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
    """Tells the user when no worker is alive, and clears that message once there is one."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.due, self.said = time.monotonic() + folder.patience, False

    def look(self, job: Job, hear: Hear) -> None:
        """Look for a worker; if there has been none for a while, report that as the progress of `job`."""
        store, now = job.chunk.path.parent.parent.parent, time.monotonic()
        if anyone_at_work(store):
            if self.said:
                hear(job, Progress(0, job.experiment.steps))
            self.due, self.said = now + self.folder.patience, False
        elif now >= self.due:
            text = f"no worker is at work in {store}"
            hear(job, Progress(0, job.experiment.steps, {}, f"{text}: start one with `anchorlab worker {store}`", text))
            self.due, self.said = now + self.folder.again, True
