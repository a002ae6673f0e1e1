"""Kills: processes of a study are killed again and again, until it is at its end; then its bytes are judged."""

import random
from contextlib import closing
from pathlib import Path

from tests.faults.case import Case
from tests.faults.crews import Alone, Crew, Fault, InProcesses, OnAFolder
from tests.faults.judge import Reference, unreadable, wrong
from tests.faults.moments import Moment, struck
from tests.faults.ray_crew import OnRay
from tests.faults.roles import WORKER, Place, read_said

CREWS: dict[str, type[Crew]] = {"local": Alone, "processes": InProcesses, "folder": OnAFolder, "ray": OnRay}

_BY_TIME = 0.25  # of the kills; the others strike at an operation on files


def draw(crew: type[Crew], expected: Reference, chance: random.Random, by_time: float = 0.0) -> Fault:
    """Draw a fault: a role, one of its places, and one of the operations there; or, at times, a role and a time."""
    role = chance.choice(list(crew.roles))
    if chance.random() < by_time or not crew.roles[role]:
        return Fault(role, None, chance.random() * expected.seconds)
    place = chance.choice(crew.roles[role])
    most = max(1, expected.counts.get(place, 8) // (crew.share if role == WORKER else 1))
    return Fault(role, Moment(place, int(most ** chance.random()), chance.random()))


def case(backend: str, number: int, seed: int, expected: Reference, folder: Path) -> Case:
    """Run one study to its end through one to five kills, and judge what it leaves."""
    crew_of, chance, found = CREWS[backend], random.Random(f"{seed} {backend} {number}"), Case()
    place = Place(folder)
    place.disk.mkdir(parents=True)
    with closing(crew_of(place)) as crew:
        for _ in range(chance.choice((1, 2, 3, 5))):
            before = len(found.faults)
            crew.turn(draw(crew_of, expected, chance, _BY_TIME))
            found.faults = struck(place.record)
            if len(found.faults) > before:
                found.cost += unreadable(place) if backend == "local" else []
                continue
            found.late += 1
            if (said := read_said(place)) is not None and not said.kind:
                break
        crew.turn(None)
        found.faults = struck(place.record)
        found.cost += wrong(place, expected)
    return found
