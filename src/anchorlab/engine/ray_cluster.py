"""Train jobs as tasks of a Ray cluster whose nodes share the folder of the store."""

import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from anchorlab.engine.job import Job
from anchorlab.errors import AnchorlabError, SpecError

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
    """

    address: str | None = None
    modules: tuple[str, ...] = ()
    device: str = "cpu"
    retries: int = 5
    label: ClassVar[str] = "connecting to Ray"

    @contextmanager
    def pool(self) -> Iterator["_Tasks"]:
        """Connect to the cluster; an existing connection of this process is used and kept."""
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # send no usage statistics
        try:
            import ray
        except ImportError:
            raise SpecError("on", "ray is not installed", "run pip install 'anchorlab[ray]'") from None
        if ray.is_initialized():
            yield _Tasks(ray, self)
            return
        _check_reachable(self.address or os.environ.get("RAY_ADDRESS", ""))
        ends = signal.getsignal(signal.SIGTERM)
        try:
            ray.init(self.address, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
            raise AnchorlabError(f"Ray cannot be reached: {str(error).splitlines()[0]}") from None
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, ends)  # Ray's handler would end the process silently
        try:
            yield _Tasks(ray, self)
        finally:
            ray.shutdown()


class _Tasks:
    """The tasks of a cluster as a `Pool`; Ray itself queues what does not fit."""

    slots = sys.maxsize

    def __init__(self, ray: Any, cluster: Ray) -> None:
        self.ray = ray
        gpus = int(cluster.device == "cuda")
        self.call = ray.remote(_call).options(num_cpus=1, num_gpus=gpus, max_retries=cluster.retries, name="anchorlab")

    def submit(self, jobs: Sequence[Job]) -> list[Any]:
        return [self.call.remote(job) for job in jobs]

    def ended(self, tasks: Sequence[Any], seconds: float) -> list[tuple[Any, Exception | None]]:
        try:
            self.ray.wait(list(tasks), timeout=seconds)
            ended: list[Any] = self.ray.wait(list(tasks), num_returns=len(tasks), timeout=0)[0]
            return [(task, self._error(task)) for task in ended]
        except SystemError as error:  # Ray's C code wraps errors of signal handlers in it
            raise error.__cause__ or error from None

    def stop(self, tasks: Sequence[Any]) -> None:
        """Cancel tasks, and wait until they have kept their states."""
        for task in tasks:
            self.ray.cancel(task)
        if tasks:
            self.ray.wait(list(tasks), num_returns=len(tasks), timeout=_FAREWELL)

    def _error(self, task: Any) -> Exception | None:
        try:
            found: AnchorlabError | None = self.ray.get(task)
        except self.ray.exceptions.RayError as error:  # its process or node died at every try
            return AnchorlabError(str(error).strip().splitlines()[-1])
        return found


def _call(job: Job) -> AnchorlabError | None:
    return job()


def _check_reachable(address: str) -> None:
    """Raise `AnchorlabError` if nothing listens at HOST:PORT: Ray itself would keep trying for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon:
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE).close()
    except (OSError, ValueError) as error:
        raise AnchorlabError(f"Ray cannot be reached at {address}: {error}; start it with `ray start --head`") from None
