"""Two owners: a worker loses its claim by force while it writes, another takes the chunk, and both go on."""

import os
import random
import re
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from anchorlab.engine import plan
from anchorlab.runs import Store
from anchorlab.runs.claim import NAME
from tests.faults.case import Case
from tests.faults.crews import HANGS, OF_CHUNKS, end
from tests.faults.judge import Reference, wrong
from tests.faults.moments import Moment, Struck, struck
from tests.faults.roles import Place, drive, start, state_of, work
from tests.faults.study import PROFILE, STUDY, keep_often

_PATIENCE = 10.0  # seconds for a worker to come to its moment


def case(number: int, seed: int, expected: Reference, folder: Path) -> Case:
    """Freeze a worker before a write, remove its claim, let another take its chunk, and wake the first.

    The other is frozen, too, while it works on that chunk, so that both are in the middle of it; then both go on.
    """
    chance, found = random.Random(f"{seed} two owners {number}"), Case(f"two-owners:{number}")
    place, began, team = Place(folder), time.monotonic(), []
    place.disk.mkdir(parents=True)
    plan(STUDY.experiments_of(PROFILE), Store(place.root), chunks=1)
    try:
        for share in (2, 12):  # the second is to be met in its first chunk
            at = chance.choice(OF_CHUNKS)
            moment = Moment(at, int(max(1, expected.counts[at] // share) ** chance.random()), act="freeze")
            team.append(start(work, place, moment))
            if not _frozen(team[-1].pid):
                break
            if len(team) == 1 or chance.random() < 0.5:
                for claim in place.root.rglob(NAME):
                    claim.unlink()
        found.faults = _owned_twice(place)
        found.late = int(not found.faults)
        for one in chance.sample(team, len(team)):
            os.kill(one.pid, signal.SIGCONT)
            time.sleep(chance.random() * 0.1)
        driver = start(drive, place, "folder", 1, None, None)
        team.append(driver)
        until = time.monotonic() + HANGS
        while driver.is_alive() and time.monotonic() < until:
            for one in team:
                if state_of(one.pid) == "T":  # one that has come to its moment only now
                    os.kill(one.pid, signal.SIGCONT)
            driver.join(0.1)
        found.cost = wrong(place, expected)
    finally:
        for one in team:
            end(one)
    found.seconds = time.monotonic() - began
    if not found.cost:
        shutil.rmtree(folder)
    return found


def _frozen(process: int) -> bool:
    """Wait until a worker has frozen itself; return whether it has, or found nothing to do."""
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        if state_of(process) == "T":
            return True
        time.sleep(0.01)
    return False


def _owned_twice(place: Place) -> list[Struck]:
    """Return the second of two that were frozen while they worked on the same chunk, if they did."""
    frozen = struck(place.record)
    chunks = [re.match(r"\w+/state/chunk-\d+", one.path) for one in frozen]
    if len(frozen) < 2 or None in chunks or len({found[0] for found in chunks if found}) > 1:
        return []
    return [replace(frozen[1], act="two owners")]


def cases(count: int, seed: int, expected: Reference, folder: Path) -> Iterator[Case]:
    """Yield cases until so many chunks have had two owners."""
    keep_often()
    done = number = 0
    while done < count:
        found = case(number, seed, expected, folder / f"two-owners-{number}")
        done += len(found.faults)
        number += 1
        yield found
