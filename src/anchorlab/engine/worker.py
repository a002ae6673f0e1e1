"""Workers: train whatever a store has left to do, beside any number of other workers."""

import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from anchorlab.engine.job import Job
from anchorlab.engine.joint_job import JointJob
from anchorlab.engine.notes import Noting, note_failure, read_failure
from anchorlab.engine.pieces import Plan, finish, job_of
from anchorlab.engine.presence import Presence
from anchorlab.errors import AnchorlabError, DamagedChunkError, InUseError, is_out_of_memory
from anchorlab.runs import Run, Store
from anchorlab.runs.claim import LEASE
from anchorlab.training import Experiment, work_per_step
from anchorlab.training.joined import common, share_a_pass
from anchorlab.training.plugins import experiment_of
from anchorlab.training.trainer import check_device


@dataclass(frozen=True, eq=False)
class Planned:
    """An unfinished run.

    Fields
        experiment, plan: what is trained, and how
        work: how much that is; the longest go first
        joined_with: what it has in common with runs that it can be trained with; None if it is trained by itself
    """

    experiment: Experiment
    plan: Plan
    work: int
    joined_with: str | None

    @classmethod
    def read(cls, run: Run) -> "Planned":
        """Return a run as its files describe it. Errors: `AnchorlabError` if this process cannot build it."""
        experiment = experiment_of(run)
        plan = Plan.read(run, run.recorded_plan(), len(experiment.members))
        work = work_per_step(experiment) * experiment.member_steps
        return cls(experiment, plan, work, None if plan.places is None else common(experiment))

    def fits(self, other: "Planned") -> bool:
        """Return whether the members of two runs that can be joined have different places of one pass."""
        members, others = len(self.experiment.members), len(other.experiment.members)
        return share_a_pass(self.plan.places, members, other.plan.places, others)


class Worker:
    """A process that trains chunks of the store's unfinished runs, and merges a run whose last chunk it has finished.

    Chunks that others work on are left to them, and taken over once their claims have run out. A chunk that fails is
    set aside with its reason, for the one who asked for the training. Tiny runs that were planned to be trained as one
    ensemble are taken together, as many of them as are free.

    Args:
        store: where the runs are
        device: `cpu`, `cuda`, or one of several, `cuda:1`
        say: called with a line for people when something begins or ends
        keep_every: seconds between two kept states
        pause: seconds to wait when there is nothing to do
        lease: seconds after which a claim that was not renewed is free

    Errors: `SpecError` for a device that does not exist.
    """

    def __init__(
        self,
        store: Store,
        device: str = "cpu",
        say: Callable[[str], None] = lambda text: None,
        keep_every: float = 20.0,
        pause: float = 2.0,
        lease: float = LEASE,
    ) -> None:
        check_device(device)
        self.store, self.device, self.say = store, device, say
        self.keep_every, self.pause, self.lease = keep_every, pause, lease
        self._known: dict[str, Planned | None] = {}

    def work(self, until_empty: bool = False) -> int:
        """Train what there is, for ever or until nothing is left; return the number of chunks that were trained."""
        trained, presence = 0, Presence(self.store.root, self.lease)
        try:
            while True:
                presence.show()
                left, did = self._round()
                trained += did
                if not left and until_empty:
                    return trained
                if not did:
                    time.sleep(self.pause)
        finally:
            presence.end()

    def _round(self) -> tuple[int, int]:
        """Train the first chunk that can be; return how many are left beside, also with others, and how many it did."""
        left = 0
        unfinished = self._unfinished()
        for place, planned in enumerate(unfinished):
            jobs = [self._job(planned, index) for index in range(len(planned.plan.chunks))]
            for job in jobs:
                if job.finished or read_failure(job.chunk) is not None:
                    continue
                left += 1
                if not self._can_begin(job):
                    continue
                others = self._others(planned, unfinished[place + 1 :])
                if trained := self._train(JointJob.of([job, *others.values()])):
                    for one in (planned, *others):
                        self._merge(one)
                    return left, trained
            if all(job.chunk.finished for job in jobs) and not Run(self.store.root / jobs[0].chunk.address).finished:
                left += not self._merge(planned)
        return left, 0

    def _unfinished(self) -> list[Planned]:
        """Return the runs that are planned and not finished, the longest first."""
        found = []
        for run in self.store.runs():
            if run.finished or not run.plan_path.exists():
                self._known.pop(run.address, None)
                continue
            if run.address not in self._known:
                self._known[run.address] = self._read(run)
            if (planned := self._known[run.address]) is not None:
                found.append(planned)
        return sorted(found, key=lambda one: -one.work)

    def _read(self, run: Run) -> Planned | None:
        """Return an unfinished run as its files describe it; None if this process cannot build it."""
        try:
            return Planned.read(run)
        except (AnchorlabError, TypeError) as error:
            hint = "" if "--import" in str(error) else "; modules of your own need --import"
            self.say(f"{run.address} is left to others: {error}{hint}")
            return None

    def _job(self, planned: Planned, index: int) -> Job:
        return job_of(self.store, planned.experiment, planned.plan, index, self.device, self.keep_every, self.lease)

    def _can_begin(self, job: Job) -> bool:
        """Return whether nobody works on a chunk, and the run that it starts from is finished."""
        return job.chunk.owner is None and (job.start is None or Run(job.start[0]).finished)

    def _others(self, planned: Planned, unfinished: Sequence[Planned]) -> dict[Planned, Job]:
        """Return the runs that can be trained with this one and that nobody works on, with their jobs."""
        found: dict[Planned, Job] = {}
        if planned.joined_with is None:
            return found
        for one in unfinished:
            if one.joined_with != planned.joined_with or not all(one.fits(other) for other in (planned, *found)):
                continue
            job = self._job(one, 0)
            if not job.finished and read_failure(job.chunk) is None and self._can_begin(job):
                found[one] = job
        return found

    def _train(self, job: Job) -> int:
        """Train a job; return how many of its chunks have ended, and not been left to another worker.

        A joint job that fails is tried again part by part.
        """
        try:
            self.say(f"training {job}")
            job.train(Noting(job.chunk, self.say))
        except Exception as error:  # noqa: BLE001 - whoever asked for the training reads it
            if isinstance(error, InUseError):  # of runs that are trained together, the next round takes those left
                self.say(f"left {job} to another: {error}")
                return 0
            if len(job.parts) > 1:
                self.say(f"{job} cannot be trained together: {reason_of(error)}")
                return sum(self._train(part) for part in job.parts if not part.finished)
            reason = reason_of(error)
            self.say(f"{job} failed: {reason}")
            note_failure(job.chunk, reason)
        else:
            self.say(f"finished {job}")
        return len(job.parts)

    def _merge(self, planned: Planned) -> bool:
        """Merge a run if all its chunks are finished; return whether nothing of it is left to do here."""
        jobs = [self._job(planned, index) for index in range(len(planned.plan.chunks))]
        if not all(job.chunk.finished for job in jobs):
            return True
        try:
            finish(self.store, planned.experiment, planned.plan, self.lease)
        except DamagedChunkError as error:
            (job,) = (one for one in jobs if one.chunk.contains(error.path))
            self.say(job.restarts(error))
            with job.chunk as chunk:
                chunk.restart()
            return False
        except AnchorlabError as error:
            self.say(f"{planned.experiment.cell.label} cannot be merged: {error}")
        else:
            self.say(f"merged {planned.experiment.cell.label}")
        return True


def reason_of(error: Exception) -> str:
    """Return why a training failed, in one line."""
    if is_out_of_memory(error):
        return "out of memory"
    if isinstance(error, AnchorlabError):
        return str(error)
    last = traceback.extract_tb(error.__traceback__)[-1:]
    at = "".join(f" ({frame.filename}, line {frame.lineno})" for frame in last)
    return f"{type(error).__name__}: {error}{at}"
