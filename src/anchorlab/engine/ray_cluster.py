"""Train jobs as tasks of a Ray cluster whose nodes share the folder of the store."""

import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anchorlab.engine.backend import Done, Hear
from anchorlab.engine.job import Job, JointJob
from anchorlab.engine.modules import import_modules
from anchorlab.engine.progress_files import News, Noting
from anchorlab.engine.scheduler import job_of
from anchorlab.engine.worker import Planned, reason_of
from anchorlab.errors import AnchorlabError, InUseError, SpecError
from anchorlab.runs import Run, Store

_PATIENCE = 10.0  # seconds to wait for the cluster's answer
_FAREWELL = 10.0  # seconds for cancelled tasks to keep their states


@dataclass(frozen=True)
class Ray:
    """A Ray cluster whose tasks read their experiments from the store.

    If a task's process or node dies, the task is tried again elsewhere and resumes from the chunk's last state.

    Fields
        address: the address of a running cluster, `auto` for a cluster on this machine; None for `$RAY_ADDRESS`, else a
            new cluster on this machine for the time of the training
        modules: Python modules that register the tasks and models of the runs
        device: `cpu`, or `cuda` for one GPU per task
        retries: how often a task is tried again after its process or node has died
        pause: seconds between two checks of the tasks
    """

    address: str | None = None
    modules: tuple[str, ...] = ()
    device: str = "cpu"
    retries: int = 5
    pause: float = 0.5

    def beginning(self, store: Path) -> str:
        """Return a message that a cluster is being connected to, or started."""
        return f"connecting to the Ray cluster at {self.address}" if self.address else "starting Ray"

    def train(self, jobs: Iterator[Job], hear: Hear, done: Done) -> None:
        """Train all jobs, as `Backend.train` requires; if it ends early, cancel all tasks."""
        with _connected(self.address) as ray:
            task = ray.remote(_train).options(
                num_cpus=1, num_gpus=int(self.device == "cuda"), max_retries=self.retries, name="anchorlab"
            )
            running = {task.remote(*self._where(job)): job for job in jobs}
            news = News()
            try:
                while running:
                    for reference in _ended(ray, list(running), self.pause):
                        done(running.pop(reference), _error(ray, reference))
                    for job in running.values():
                        if (progress := news.of(job.chunk)) is not None:
                            hear(job, progress)
            finally:
                for reference in running:
                    ray.cancel(reference)
                _ended(ray, list(running), _FAREWELL)

    def _where(self, job: Job) -> tuple[Any, ...]:
        """Return a task's arguments as plain values; the task reads the experiment itself from the store."""
        chunks = [(part.chunk.address, int(part.chunk.path.name.removeprefix("chunk-"))) for part in job.parts]
        store = job.chunk.path.parent.parent.parent.absolute()
        return str(store), chunks, self.device, job.keep_every, self.modules, str(Path.cwd())


def _train(
    store: str, chunks: list[tuple[str, int]], device: str, keep_every: float, modules: tuple[str, ...], folder: str
) -> tuple[str, str] | None:
    """Train chunks of runs, several of them as one ensemble; the task that Ray executes.

    Return None when all are trained, else the kind of the error, `in use` or `failed`, and its message.
    """
    left = [(run, index) for address, index in chunks if not (run := Run(Path(store) / address)).finished]
    if not left:
        return None
    try:
        import_modules(modules, folder)
        jobs = []
        for run, index in left:
            planned = Planned.read(run)
            jobs.append(job_of(Store(store), planned.experiment, planned.plan, index, device, keep_every))
        job = JointJob.of(jobs)
        job.train(Noting(job.chunk))
    except InUseError as error:
        return "in use", str(error)
    except Exception as error:  # noqa: BLE001 - the driver reports it
        return "failed", reason_of(error)
    return None


def _ended(ray: Any, references: list[Any], seconds: float) -> list[Any]:
    """Wait until all tasks have ended or the time is over, and return those that have ended."""
    try:
        ended: list[Any] = ray.wait(references, num_returns=len(references), timeout=seconds)[0] if references else []
    except SystemError as error:  # Ray's C code wraps errors of signal handlers in it
        raise error.__cause__ or error from None
    return ended


def _error(ray: Any, reference: Any) -> Exception | None:
    """Return the error that ended a task; None if it succeeded."""
    try:
        found = ray.get(reference)
    except ray.exceptions.RayError as error:  # its process or node died at every try
        return AnchorlabError(str(error).strip().splitlines()[-1])
    if found is None:
        return None
    kind, words = found
    return InUseError(words) if kind == "in use" else AnchorlabError(words)


@contextmanager
def _connected(address: str | None) -> Iterator[Any]:
    """Connect to a cluster and yield the module `ray`; an existing connection of this process is used and kept."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # send no usage statistics
    try:
        import ray
    except ImportError:
        raise SpecError("on", "ray is not installed", "run pip install 'anchorlab[ray]'") from None
    if ray.is_initialized():
        yield ray
        return
    _check_reachable(address or os.environ.get("RAY_ADDRESS", ""))
    ends = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise AnchorlabError(f"Ray cannot be reached: {str(error).splitlines()[0]}") from None
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, ends)  # Ray's handler would end the process silently
    try:
        yield ray
    finally:
        ray.shutdown()


def _check_reachable(address: str) -> None:
    """Raise `AnchorlabError` if nothing listens at HOST:PORT: Ray itself would keep trying for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon:
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE).close()
    except (OSError, ValueError) as error:
        raise AnchorlabError(f"Ray cannot be reached at {address}: {error}; start it with `ray start --head`") from None
