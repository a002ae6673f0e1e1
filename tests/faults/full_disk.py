"""Full disks: at a random moment not one byte more can be written; when there is space again the study goes on."""

import random
import shutil
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from tests.faults.case import Case
from tests.faults.judge import Reference, wrong
from tests.faults.kills import CREWS, draw
from tests.faults.moments import BALLAST, struck
from tests.faults.roles import Place, errors, read_said
from tests.small_disk import small_disk

_BACKENDS = ("local", "processes", "folder")
_KILOBYTES = 8192
_FULL_FOR = 1.0  # seconds, in which the other processes notice
_REASON = "No space left on device"


def case(number: int, seed: int, expected: Reference, folder: Path) -> Case:
    """Run one study whose disk is full for a while, and judge what it said and what it leaves."""
    backend = _BACKENDS[number % len(_BACKENDS)]
    chance, found, place = random.Random(f"{seed} full disk {number}"), Case(), Place(folder)
    fault = draw(CREWS[backend], expected, chance)
    assert fault.moment is not None
    with small_disk(place.disk) as sized, closing(CREWS[backend](place)) as crew:
        sized(_KILOBYTES)
        crew.turn(replace(fault, moment=replace(fault.moment, act="fill")))
        found.faults = struck(place.record)
        if found.faults:
            time.sleep(_FULL_FOR if backend == "folder" else 0)
            found.cost += [f"the reason is not named: {one}" for one in errors(place) if _REASON not in one.words]
            (place.disk / BALLAST).unlink()
        else:
            found.late = 1
        crew.turn(None)
        if (said := read_said(place)) is not None and _REASON in said.words:  # about work that was set aside meanwhile
            crew.turn(None)
        found.cost += wrong(place, expected)
        if found.cost:
            shutil.copytree(place.root, folder / "kept")
    return found
