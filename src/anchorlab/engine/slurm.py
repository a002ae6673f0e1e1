"""Train jobs as jobs of Slurm, whose nodes share the folder of the store."""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from anchorlab.engine.job import Job
from anchorlab.errors import AnchorlabError, SpecError
from anchorlab.plain import parse_json, read_data
from anchorlab.runs.atomic_files import write_file
from anchorlab.spec import unknown_name

_MINUTES = 240


@dataclass(frozen=True)
class Slurm:
    """Jobs of Slurm, sent by submitit, whose files lie in a folder beside the store, `STORE-slurm`.

    A job that reaches its time limit or is preempted is queued again, and resumes from the chunk's last state. Jobs go
    on if this process ends; the same command finds those that are still queued or running.

    Fields
        options: parameters of submitit's Slurm executor by name, such as `{"partition": "gpu", "time": 60}`, in
            minutes; `array_parallelism` is the number of jobs at a time
        modules: Python modules that register the tasks and models of the runs
        device: `cpu`, or `cuda` for one GPU per job
        retries: how often a job is queued again after its time limit
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    modules: tuple[str, ...] = ()
    device: str = "cpu"
    retries: int = 100
    label: ClassVar[str] = "sending jobs to Slurm"

    def __post_init__(self) -> None:
        for name, value in self.options.items():
            if not str(value).isprintable():  # it could end a line of the jobs' script, and the rest would be run
                raise SpecError(f"slurm.{name}", "holds a control sign", "remove it")

    def pool(self) -> AbstractContextManager["_Queue"]:
        """Connect to the queue."""
        return nullcontext(_Queue(self))


class _Queue:
    slots = sys.maxsize

    def __init__(self, slurm: Slurm) -> None:
        try:
            import submitit
        except ImportError:
            raise SpecError("on", "submitit is not installed", "run pip install 'anchorlab[slurm]'") from None
        self.slurm, self.submitit, self._utils = slurm, submitit, submitit.core.utils

    def submit(self, jobs: Sequence[Job]) -> list[tuple[Job, Any]]:
        """Send one job array; for a job with a chunk that an earlier command's job still trains, return that job."""
        store = Path(jobs[0].store)
        folder = store.with_name(f"{store.name}-slurm")
        executor, sent = self._executor(folder), folder / "sent.json"
        numbers: dict[str, str] = {}
        with suppress(OSError, ValueError, TypeError):  # there is no file yet, or the disk was full
            numbers = dict(parse_json(read_data(sent)))
        tasks = {name: task for name, number in numbers.items() if (task := self._queued(folder, number)) is not None}
        by_chunk = {chunk: task for name, task in tasks.items() for chunk in name.split()}
        earlier = {job: [by_chunk[chunk] for chunk in _name(job).split() if chunk in by_chunk] for job in jobs}
        new = [job for job in jobs if not earlier[job]]
        try:
            with executor.batch() if new else nullcontext():
                sent_now = {_name(job): executor.submit(job) for job in new}
        except (OSError, self._utils.FailedJobError, self._utils.FailedSubmissionError) as error:
            raise AnchorlabError(f"Slurm refuses the jobs: {str(error).strip().splitlines()[-1]}") from None
        tasks |= sent_now
        write_file(folder, sent.name, [json.dumps({name: task.job_id for name, task in tasks.items()}).encode()])
        return [(job, earlier[job][0] if earlier[job] else tasks[_name(job)]) for job in jobs]

    def ended(self, tasks: Sequence[tuple[Job, Any]], seconds: float) -> list[tuple[tuple[Job, Any], Exception | None]]:
        """Return the jobs that have ended, with their errors; if none has, wait for `seconds` and return none."""
        if not (ended := [task for task in tasks if task[1].done()]):
            time.sleep(seconds)
        return [(task, self._error(task[1])) for task in ended]

    def stop(self, tasks: Sequence[tuple[Job, Any]]) -> None:
        """Leave the jobs in the queue."""

    def _error(self, sent: Any) -> Exception | None:
        try:
            found: AnchorlabError | None = sent.result()
        except self._utils.UncompletedJobError as error:
            return AnchorlabError(f"job {sent.job_id} of Slurm: {str(error).strip().splitlines()[-1]}")
        return found

    def _executor(self, folder: Path) -> Any:
        options = {f"slurm_{name}": value for name, value in self.slurm.options.items() if name != "time"}
        if self.slurm.device == "cuda":
            options = {"slurm_gpus_per_node": 1, **options}
        try:
            executor = self.submitit.AutoExecutor(
                folder=folder, cluster="slurm", slurm_max_num_timeout=self.slurm.retries
            )
        except RuntimeError:
            raise SpecError("on", "there is no Slurm on this machine", "run where srun and sbatch are") from None
        try:
            executor.update_parameters(
                name="anchorlab", timeout_min=self.slurm.options.get("time", _MINUTES), **options
            )
        except NameError as error:  # an unknown name, with a list of those that submitit knows
            said, _, known = str(error).partition(". Valid arguments: ")
            raise unknown_name("slurm", said.split("'")[1], known.splitlines()[0].split(", "), "option") from None
        return executor

    def _queued(self, folder: Path, number: str) -> Any:
        job: Any = self.submitit.SlurmJob(folder=folder, job_id=number, tasks=[0])
        return None if job.done(force_check=True) else job


def _name(job: Job) -> str:
    return " ".join(f"{address}/{index}" for address, index in job.chunks)
