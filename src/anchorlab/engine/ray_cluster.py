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
from anchorlab.engine.job import Job
from anchorlab.engine.joint_job import JointJob
from anchorlab.engine.modules import import_modules
from anchorlab.engine.notes import News, Noting
from anchorlab.engine.pieces import job_of
from anchorlab.engine.worker import Planned, reason_of
from anchorlab.errors import AnchorlabError, InUseError, SpecError
from anchorlab.runs import Run, Store

_PATIENCE = 10.0  # seconds to wait for the cluster's answer
_FAREWELL = 10.0  # seconds in which cancelled tasks keep their states


@dataclass(frozen=True)
class Ray:
    """A Ray cluster. A task reads from the store what to train.

    A task whose process or node dies is tried again on another, and goes on from the chunk's last state.

    Fields
        address: of a cluster that runs already, `auto` for the one on this machine; None for `$RAY_ADDRESS`, or else a
            new cluster on this machine for as long as the training takes
        modules: Python modules that register the tasks and models of the runs
        device: `cpu`, or `cuda` for a GPU for each task
        retries: how often a task is tried again after its process or node has died
        pause: seconds between two looks at the tasks
    """

    address: str | None = None
    modules: tuple[str, ...] = ()
    device: str = "cpu"
    retries: int = 5
    pause: float = 0.5

    def beginning(self, store: Path) -> str:
        """Return that a cluster is sought, or started."""
        return f"connecting to the Ray cluster at {self.address}" if self.address else "starting Ray"

    def train(self, jobs: Iterator[Job], hear: Hear, done: Done) -> None:
        """Train all jobs, as `Backend.train` says; when it ends early, all tasks are cancelled."""
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
        """Return what a task needs to know, in plain values: the experiment itself is read from the store."""
        chunks = [(part.chunk.address, int(part.chunk.path.name.removeprefix("chunk-"))) for part in job.parts]
        store = job.chunk.path.parent.parent.parent.absolute()
        return str(store), chunks, self.device, job.keep_every, self.modules, str(Path.cwd())


def _train(
    store: str, chunks: list[tuple[str, int]], device: str, keep_every: float, modules: tuple[str, ...], folder: str
) -> tuple[str, str] | None:
    """Train chunks of runs, several as one ensemble; return None, or the kind of what ended it and its words."""
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
    """Return the tasks that have ended, when all have or the time is over."""
    try:
        ended: list[Any] = ray.wait(references, num_returns=len(references), timeout=seconds)[0] if references else []
    except SystemError as error:  # Ray's C code puts it around what the handler of a signal raises
        raise error.__cause__ or error from None
    return ended


def _error(ray: Any, reference: Any) -> Exception | None:
    """Return what ended a task, None if it has done its work."""
    try:
        found = ray.get(reference)
    except ray.exceptions.RayError as error:  # its process or node died again and again
        return AnchorlabError(str(error).strip().splitlines()[-1])
    if found is None:
        return None
    kind, words = found
    return InUseError(words) if kind == "in use" else AnchorlabError(words)


@contextmanager
def _connected(address: str | None) -> Iterator[Any]:
    """Connect to a cluster inside `with`, unless this process has a connection already."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere
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
        signal.signal(signal.SIGTERM, ends)  # Ray's own would end the process without a word
    try:
        yield ray
    finally:
        ray.shutdown()


def _check_reachable(address: str) -> None:
    """Raise `AnchorlabError` where nobody listens at HOST:PORT, which Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon:
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE).close()
    except (OSError, ValueError) as error:
        raise AnchorlabError(f"Ray cannot be reached at {address}: {error}; start it with `ray start --head`") from None
