"""Crews: the processes that run a study on each backend, and how one of them meets a fault."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from anchorlab.engine import plan
from anchorlab.runs import Store
from tests.faults.moments import PLACES, Moment, Struck, struck
from tests.faults.roles import DRIVER, WORKER, Place, Said, children, drive, kill_alive, start, work
from tests.faults.study import PROFILE, STUDY

HANGS = 300.0
"""Seconds after which a study that has not come to its end is said to hang."""

OF_CHUNKS = ("claim", "state", "part of a checkpoint", "result")
OF_RUNS = ("run", "plan", "merge", "end of a run", "removal of the states")


@dataclass(frozen=True)
class Fault:
    """A fault that is to happen: to which role, at a moment of its work, or a kill after some seconds."""

    role: str
    moment: Moment | None
    after: float = 0.0


class Crew(Protocol):
    """The processes that run the study in one place, on one backend.

    Fields
        roles: what a fault can strike, and in which places of the store each of them writes
        share: how many workers share the work
    """

    roles: ClassVar[dict[str, tuple[str, ...]]]
    share: ClassVar[int]

    def __init__(self, place: Place) -> None: ...

    def turn(self, fault: Fault | None) -> None:
        """Let the study go on until the fault has happened, or until the study is at its end."""

    def close(self) -> None:
        """End all processes."""


class Alone:
    """This machine, one process."""

    roles: ClassVar = {DRIVER: tuple(place for place in PLACES if place != "note")}
    workers, share = 1, 1

    def __init__(self, place: Place) -> None:
        self.place = place
        self.driver: Any = None

    def turn(self, fault: Fault | None) -> None:
        moments = {fault.role: fault.moment} if fault else {}
        self.place.said.unlink(missing_ok=True)
        self.driver = start(drive, self.place, "local", self.workers, moments.get(DRIVER), moments.get(WORKER))
        if fault and fault.moment is None:
            strike_later(self.place, fault, lambda: self._of(fault.role), self.driver)
        self.driver.join(HANGS)
        give_up(self.place, self.driver)

    def _of(self, role: str) -> list[int]:
        return [self.driver.pid] if role == DRIVER else children(self.driver.pid)

    def close(self) -> None:
        end(self.driver)


class InProcesses(Alone):
    """This machine, two processes that the driver starts."""

    roles: ClassVar = {DRIVER: (*OF_RUNS, "findings"), WORKER: OF_CHUNKS}
    workers, share = 2, 2


class OnAFolder:
    """Four workers that share the folder of the store, and a driver that waits for them."""

    roles: ClassVar = {DRIVER: (*OF_RUNS, "findings"), WORKER: (*OF_CHUNKS, "note", *OF_RUNS[2:])}
    share = 4

    def __init__(self, place: Place) -> None:
        self.place = place
        self.driver: Any = None
        self.workers: list[Any] = []

    def turn(self, fault: Fault | None) -> None:
        role, moment = (fault.role, fault.moment) if fault else ("", None)
        self.workers = [one for one in self.workers if one.is_alive()]
        if role == WORKER and moment:  # in place of a worker that is not to be struck
            while len(self.workers) >= self.share:
                end(self.workers.pop())
            self.workers.append(start(work, self.place, moment))
        while len(self.workers) < self.share:
            self.workers.append(start(work, self.place, None))
        if self.driver is None or not self.driver.is_alive():
            self.place.said.unlink(missing_ok=True)
            self.driver = start(drive, self.place, "folder", 3, moment if role == DRIVER else None, None)
        if fault and moment is None:
            strike_later(self.place, fault, lambda: self._of(role), self.driver)
        self._wait(len(struck(self.place.record)) if moment else None)

    def _wait(self, before: int | None) -> None:
        """Wait until the driver has ended, or until there are more faults than before."""
        until = time.monotonic() + HANGS
        while self.driver.is_alive():
            if before is not None and len(found := struck(self.place.record)) > before:
                if found[-1].act == "kill":
                    (victim,) = (one for one in (self.driver, *self.workers) if one.pid == found[-1].process)
                    victim.join()
                return
            if time.monotonic() > until:
                give_up(self.place, self.driver)
            time.sleep(0.01)

    def _of(self, role: str) -> list[int]:
        return [self.driver.pid] if role == DRIVER else [one.pid for one in self.workers]

    def close(self) -> None:
        for one in (self.driver, *self.workers):
            end(one)


def give_up(place: Place, driver: Any) -> None:
    """End a driver that still runs, and write down that it took too long: it was not killed by a fault."""
    if driver.is_alive():
        end(driver)
        place.said.write_text(json.dumps(vars(Said("TimeoutError", f"the study took longer than {HANGS:g} s"))))


@contextmanager
def team_of(place: Place) -> Iterator[list[Any]]:
    """Plan the study, one chunk a run, and yield a list for its processes, which are ended afterwards."""
    team: list[Any] = []
    place.disk.mkdir(parents=True)
    plan(STUDY.experiments_of(PROFILE), Store(place.root), chunks=1)
    try:
        yield team
    finally:
        for one in team:
            end(one)


def wait_until(holds: Callable[[], bool], seconds: float) -> bool:
    """Wait until something holds, at most for some seconds; return whether it does."""
    until = time.monotonic() + seconds
    while not (found := holds()) and time.monotonic() < until:
        time.sleep(0.005)
    return found


def strike_later(place: Place, fault: Fault, victims: Callable[[], list[int]], driver: Any) -> None:
    """Kill one of the processes of a role after some seconds, unless the study is at its end before."""
    until = time.monotonic() + fault.after
    while time.monotonic() < until and driver.is_alive():
        time.sleep(0.002)
    if found := victims():
        victim = found[int(fault.after * 1e6) % len(found)]
        if kill_alive(victim):
            with place.record.open("a") as file:
                file.write(Struck(fault.role, victim, "any time").to_json())


def end(process: Any) -> None:
    """Kill a process, if there is one, and wait until it has ended."""
    if process is not None:
        process.kill()
        process.join()
