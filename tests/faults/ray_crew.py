"""A Ray cluster of three nodes on this machine, of which drivers, processes of tasks, and whole nodes are killed."""

import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from tests.faults.crews import HANGS, OF_RUNS, Alone, Fault, give_up, strike_later
from tests.faults.roles import DRIVER, Place, drive, start

TASK, NODE = "task", "raylet"


class OnRay(Alone):
    """Three nodes of one core; all cases share them, and a node that was killed is replaced."""

    roles: ClassVar = {DRIVER: (*OF_RUNS, "findings"), TASK: (), NODE: ()}

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.cluster = cluster()

    def turn(self, fault: Fault | None) -> None:
        for node in list(self.cluster.worker_nodes):
            if not _pid(node, alive=True):
                self.cluster.remove_node(node, allow_graceful=False)
                self.cluster.add_node(num_cpus=1, object_store_memory=100 * 2**20)
        self.place.said.unlink(missing_ok=True)
        moment = fault.moment if fault else None
        self.driver = start(drive, self.place, self.cluster.address, 3, moment, None)
        if fault and moment is None:
            while self.driver.is_alive() and not self._tasks():  # it takes a while until any has begun
                time.sleep(0.01)
            strike_later(self.place, fault, lambda: self._of(fault.role), self.driver)
        self.driver.join(HANGS)
        give_up(self.place, self.driver)

    def _of(self, role: str) -> list[int]:
        if role == NODE:  # not that of the head, which has what the cluster knows
            return [_pid(node) for node in self.cluster.worker_nodes]
        return [self.driver.pid] if role == DRIVER else self._tasks()

    def _tasks(self) -> list[int]:
        """Return the processes that train."""
        nodes = {_pid(node) for node in self.cluster.list_all_nodes()}
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
                if parent in nodes and (path / "cmdline").read_bytes().startswith(b"ray::anchorlab"):
                    found.append(int(path.name))
        return found


def _pid(node: Any, alive: bool = False) -> int:
    """Return the process of a node's raylet; with `alive`, 0 if it has ended."""
    process = node.all_processes["raylet"][0].process
    return 0 if alive and process.poll() is not None else int(process.pid)


@cache
def cluster() -> Any:
    """Return the cluster, which is started the first time. Errors: `ImportError` without Ray."""
    from ray.cluster_utils import Cluster

    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 100 * 2**20})
    for _ in range(2):
        found.add_node(num_cpus=1, object_store_memory=100 * 2**20)
    return found


def stop_cluster() -> None:
    """End the cluster, if it was started."""
    if cluster.cache_info().currsize:
        cluster().shutdown()
