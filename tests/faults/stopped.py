"""Stopped workers: one is frozen for longer than its lease, another takes over what it had claimed, and it goes on."""

import json
import os
import random
import signal
import time
from dataclasses import replace
from pathlib import Path

from anchorlab.runs.lease import NAME
from tests.faults.case import Case
from tests.faults.crews import HANGS, OnAFolder, team_of, wait_until
from tests.faults.judge import Reference, wrong
from tests.faults.moments import Moment, struck
from tests.faults.roles import WORKER, Place, drive, errors, start, state_of, work

_LEASE = 3.0  # seconds, enough for a renewal on a busy machine
_PATIENCE = 30.0  # seconds for a worker to come to its moment, and for the other to take over


def case(number: int, seed: int, expected: Reference, folder: Path) -> Case:
    """Freeze one of two workers; wake it when the other has taken what it held, or when the other has done everything.

    Both must end by themselves, without an error.
    """
    chance, found, place = random.Random(f"{seed} stopped {number}"), Case(), Place(folder)
    at = chance.choice([one for one in OnAFolder.roles[WORKER] if one not in ("note", "removal of the states")])
    moment = Moment(at, int(expected.counts[at] ** chance.random()), act="freeze")
    waits_for_all, patience = chance.random() < 0.3, chance.random() * 0.3
    with team_of(place) as team:
        first = start(work, place, moment, _LEASE, True)
        team.append(first)
        wait_until(lambda: state_of(first.pid) == "T" or not first.is_alive(), _PATIENCE)
        held = _held(place.root, first.pid)
        second = start(work, place, None, _LEASE, True)
        team.append(second)
        if state_of(first.pid) == "T":
            wait_until(lambda: any(map(_is_taken, held)) or not second.is_alive(), _PATIENCE)
            if waits_for_all:
                second.join(_PATIENCE)
            time.sleep(patience)
            found.faults = [replace(one, act="stopped") for one in struck(place.record) if any(map(_is_taken, held))]
            os.kill(first.pid, signal.SIGCONT)
        found.late = int(not found.faults)
        for one in team:
            one.join(HANGS)
        found.cost += [f"a worker ended with exit code {one.exitcode}" for one in team if one.exitcode != 0]
        found.cost += [f"a worker ended with an error: {said}" for said in errors(place)]
        team.append(driver := start(drive, place, "folder", 1, None, None))
        driver.join(HANGS)
        found.cost += wrong(place, expected)
    return found


_Held = tuple[Path, int]
"""A claim or a lock: its file, and the number of that file on the disk."""


def _held(root: Path, process: int) -> list[_Held]:
    """Return the claims and locks of a process."""
    claims = [path for path in root.rglob(NAME) if json.loads(path.read_text())["process"] == process]
    locks = [path for path in root.rglob("lock") if path.read_text().startswith(f"process {process} ")]
    return [(path, path.stat().st_ino) for path in (*claims, *locks)]


def _is_taken(held: _Held) -> bool:
    path, number = held
    return not path.exists() or path.stat().st_ino != number
