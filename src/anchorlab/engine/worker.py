"""Workers: train the unfinished runs of a store, in parallel with any number of other workers."""

import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from anchorlab.engine.job import Job, JointJob
from anchorlab.engine.planning import Plan
from anchorlab.engine.presence import Presence
from anchorlab.engine.progress_files import Noting, note_failure, read_failure
from anchorlab.engine.scheduler import finish, job_of, restarted
from anchorlab.errors import AnchorlabError, DamagedChunkError, InUseError, is_out_of_memory
from anchorlab.runs import Run, Store
from anchorlab.runs.lease import LEASE
from anchorlab.training import Experiment, work_per_step
from anchorlab.training.joined import common, share_a_pass
from anchorlab.training.trained_run import experiment_of
from anchorlab.training.trainer import check_device


@dataclass(frozen=True, eq=False)
class Planned:
    """An unfinished run with its plan.

    Fields
        experiment, plan: what is trained, and how
        work: the floating-point operations of the whole run; the longest runs are trained first
        joined_with: the key, from `common`, shared by runs that can be trained together; None if it is trained alone
    """

    experiment: Experiment
    plan: Plan
    work: int
    joined_with: str | None

    @classmethod
    def read(cls, run: Run) -> "Planned":
        """Read an unfinished run from its files. Errors: `AnchorlabError` if this process cannot rebuild it."""
        experiment = experiment_of(run)
        plan = Plan.read(run, run.recorded_plan(), len(experiment.members))
        work = work_per_step(experiment) * experiment.member_steps
        return cls(experiment, plan, work, None if plan.places is None else common(experiment))

    def fits(self, other: "Planned") -> bool:
        """Return whether two runs can share a pass, given that their experiments can be joined."""
        members, others = len(self.experiment.members), len(other.experiment.members)
        return share_a_pass(self.plan.places, members, other.plan.places, others)


class Worker:
    """Trains chunks of a store's unfinished runs, and merges a run after its last chunk.

    Chunks of other workers are left alone until their leases expire. If a chunk fails, the reason is recorded for the
    process that requested the training, and no worker takes the chunk again. Tiny runs that were planned to be trained
    as one ensemble are taken together, as far as they are free.

    Args:
        store: where the runs are
        device: `cpu`, `cuda`, or one of several, such as `cuda:1`
        say: called with a line of text when a job begins or ends
        keep_every: seconds between two kept states
        pause: seconds to wait when there is nothing to do
        lease: seconds without renewal after which a lease expires

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
        """Train chunks for ever, or until none is left; return the number of chunks that were trained or failed."""
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
        """Train the first chunk that is free, with chunks that can join it.

        Return the number of chunks seen up to it that are neither finished nor failed, other workers' included, and the
        number that this call has trained or that failed in it.
        """
        left = 0
        unfinished = self._unfinished()
        for place, planned in enumerate(unfinished):
            jobs = self._jobs(planned)
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
        """Return the unfinished runs that have a plan, the longest first."""
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
        """Read an unfinished run from its files; if this process cannot rebuild it, say so and return None."""
        try:
            return Planned.read(run)
        except (AnchorlabError, TypeError) as error:
            hint = "" if "--import" in str(error) else "; modules of your own need --import"
            self.say(f"{run.address} is left to others: {error}{hint}")
            return None

    def _jobs(self, planned: Planned) -> list[Job]:
        how = self.device, self.keep_every, self.lease
        chunks = range(len(planned.plan.chunks))
        return [job_of(self.store, planned.experiment, planned.plan, index, *how) for index in chunks]

    def _can_begin(self, job: Job) -> bool:
        """Return whether no process works on the chunk, and the run that it starts from, if any, is finished."""
        return job.chunk.owner is None and (job.start is None or Run(job.start[0]).finished)

    def _others(self, planned: Planned, unfinished: Sequence[Planned]) -> dict[Planned, Job]:
        """Return the free runs that can be trained together with this one, with their jobs."""
        found: dict[Planned, Job] = {}
        if planned.joined_with is None:
            return found
        for one in unfinished:
            if one.joined_with != planned.joined_with or not all(one.fits(other) for other in (planned, *found)):
                continue
            (job,) = self._jobs(one)  # runs with places have one chunk
            if not job.finished and read_failure(job.chunk) is None and self._can_begin(job):
                found[one] = job
        return found

    def _train(self, job: Job) -> int:
        """Train a job; return how many of its chunks were trained or failed, 0 if it was left to another worker.

        If a joint job fails, its parts are tried one by one.
        """
        try:
            self.say(f"training {job}")
            job.train(Noting(job.chunk, self.say))
        except Exception as error:  # noqa: BLE001 - whoever asked for the training reads it
            if isinstance(error, InUseError):  # the next round takes the free parts of a joint job
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
        """Merge a run if all its chunks are finished; return False if a damaged chunk must be trained again."""
        jobs = self._jobs(planned)
        if not all(job.chunk.finished for job in jobs):
            return True
        try:
            finish(self.store, planned.experiment, planned.plan, self.lease)
        except DamagedChunkError as error:
            self.say(restarted(jobs, error).restarts(error))
            return False
        except AnchorlabError as error:
            self.say(f"{planned.experiment.cell.label} cannot be merged: {error}")
        else:
            self.say(f"merged {planned.experiment.cell.label}")
        return True


def reason_of(error: Exception) -> str:
    """Return the reason for a failure, in one line; for foreign errors with the file and line."""
    if is_out_of_memory(error):
        return "out of memory"
    if isinstance(error, AnchorlabError):
        return str(error)
    last = traceback.extract_tb(error.__traceback__)[-1:]
    at = "".join(f" ({frame.filename}, line {frame.lineno})" for frame in last)
    return f"{type(error).__name__}: {error}{at}"
