"""What a study that met faults is judged by: the same study without any."""

import json
import time
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from anchorlab.errors import AnchorlabError
from anchorlab.runs import Store
from tests.engine.killed import contents
from tests.faults.moments import counted
from tests.faults.roles import Place, Said, errors, read_said, start
from tests.faults.study import keep_often, outcome, run_the_study


@dataclass(frozen=True)
class Reference:
    """The study without faults, in one process.

    Fields
        place: where it is
        outcome: what it leaves, as `outcome` returns it
        names: the files of its store
        counts: how many operations on files it took in each place
        seconds: how long it took
    """

    place: Place
    outcome: dict[str, bytes]
    names: frozenset[str]
    counts: dict[str, int]
    seconds: float


def reference(folder: Path) -> Reference:
    """Run the study without faults, in a process of its own."""
    place = Place(folder)
    folder.mkdir(parents=True)
    child = start(_run, place)
    child.join(300)
    assert child.exitcode == 0, "the study fails without any fault"
    found = json.loads(place.said.read_text())
    return Reference(place, outcome(place.root), frozenset(contents(place.root)), found["counts"], found["seconds"])


def _run(place: Place) -> None:
    keep_often()
    began = time.monotonic()
    counts: Counter[str] = counted(place.root, partial(run_the_study, place.root))
    place.said.write_text(json.dumps({"counts": counts, "seconds": time.monotonic() - began}))


def judged(place: Place, said: Said) -> None:
    """Write down how the driver has ended."""
    place.said.write_text(json.dumps(vars(said)))


def wrong(place: Place, expected: Reference) -> list[str]:
    """Return in words what a study that has come to its end has lost, or has left behind; empty if nothing."""
    said = read_said(place)
    if said is None or said.kind:
        return [f"the study is not complete: {said or 'its driver was killed'}"]
    try:
        found = outcome(place.root)
    except AnchorlabError as error:
        return [f"the study cannot be read: {error}"]
    lost = sorted(expected.outcome.keys() - found.keys())
    other = sorted(name for name in expected.outcome.keys() & found.keys() if expected.outcome[name] != found[name])
    left = sorted(name for name in contents(place.root).keys() - expected.names if not is_spare(name))
    problems = [problem for run in Store(place.root).runs() for problem in run.problems()]
    return [
        *(f"{name} is missing" for name in lost),
        *(f"{name} has other bytes" for name in other),
        *(f"{name} was left behind" for name in left),
        *problems,
        *unclear(place),
    ]


def is_spare(name: str) -> bool:
    """Return whether a file may stay: the kernel holds a lock, not its file; an index can be made at any time.

    A worker that was killed leaves its claim in `workers`.
    """
    return name.startswith(("index/", "workers/")) or name.rpartition("/")[2] in ("lock", ".lock-taken")


def unclear(place: Place) -> list[str]:
    """Return the errors, with which processes ended by themselves, that do not help people: not ours, or long."""
    found = errors(place)
    return [
        *(f"an error without a remedy: {said}" for said in found if not said.own),
        *(f"an error of several lines: {said}" for said in found if "\n" in said.words),
    ]


def unreadable(place: Place) -> list[str]:
    """Return what cannot be read of a study that was just killed: all that is there must be whole."""
    try:
        problems = [problem for run in Store(place.root).runs() for problem in run.problems()]
        Store(place.root).select()
    except AnchorlabError as error:
        return [str(error)]
    return problems
