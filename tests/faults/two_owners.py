"""Two owners: a worker loses its claim by force while it writes, another takes the chunk, and both go on."""

import os
import random
import re
import signal
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from anchorlab.runs.lease import NAME
from tests.faults.case import Case
from tests.faults.crews import HANGS, OF_CHUNKS, team_of, wait_until
from tests.faults.judge import Reference, wrong
from tests.faults.moments import Moment, Struck, struck
from tests.faults.roles import Place, drive, start, state_of, work

_PATIENCE = 10.0  # seconds for a worker to come to its moment


def case(number: int, seed: int, expected: Reference, folder: Path) -> Case:
    """Freeze a worker before a write, remove its claim, let another take its chunk, and wake the first.

    The other is frozen, too, while it works on that chunk, so that both are in the middle of it; then both go on.
    """
    chance, found, place = random.Random(f"{seed} two owners {number}"), Case(), Place(folder)
    with team_of(place) as team:
        for share in (2, 12):  # the second is to be met in its first chunk
            at = chance.choice(OF_CHUNKS)
            moment = Moment(at, int(max(1, expected.counts[at] // share) ** chance.random()), act="freeze")
            team.append(newest := start(work, place, moment))
            if not wait_until(partial(_is_frozen, newest), _PATIENCE):
                break
            if len(team) == 1 or chance.random() < 0.5:
                for claim in place.root.rglob(NAME):
                    claim.unlink()
        found.faults = _owned_twice(place)
        found.late = int(not found.faults)
        for one in chance.sample(team, len(team)):
            os.kill(one.pid, signal.SIGCONT)
            time.sleep(chance.random() * 0.1)
        team.append(driver := start(drive, place, "folder", 1, None, None))
        until = time.monotonic() + HANGS
        while driver.is_alive() and time.monotonic() < until:
            for one in filter(_is_frozen, team):  # it may come to its moment only now
                os.kill(one.pid, signal.SIGCONT)
            driver.join(0.1)
        found.cost = wrong(place, expected)
    return found


def _is_frozen(process: Any) -> bool:
    return state_of(process.pid) == "T"


def _owned_twice(place: Place) -> list[Struck]:
    """Return the second of two that were frozen while they worked on the same chunk, if they did."""
    frozen = struck(place.record)
    chunks = [re.match(r"\w+/state/chunk-\d+", one.path) for one in frozen]
    if len(frozen) < 2 or None in chunks or len({found[0] for found in chunks if found}) > 1:
        return []
    return [replace(frozen[1], act="two owners")]
