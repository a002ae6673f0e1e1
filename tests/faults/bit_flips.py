"""Bit flips: one bit of one file changes; what reads it says so, or reads what was there before."""

import os
import random
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from anchorlab.engine import plan, run
from anchorlab.errors import AnchorlabError
from anchorlab.progress import Status
from anchorlab.runs import Store
from anchorlab.training import Experiment
from tests.faults.case import Case
from tests.faults.crews import Alone, Fault
from tests.faults.judge import Reference
from tests.faults.moments import Moment, Struck, place_of
from tests.faults.readings import Readings, differences, readings
from tests.faults.roles import DRIVER, Place
from tests.faults.study import PROFILE, STUDY, keep_often, outcome_of_runs
from tests.runs.tiny_trainer import settled

_UNFINISHED_SHARE = 0.4  # of the flips

_KILLED_AT = (
    Moment("state", 60),
    Moment("result", 4),
    Moment("merge", 9),
    Moment("end of a run", 4),
)
"""Where the unfinished runs were left: within the first chunk, in the second, in the merge, and just before the end."""


@dataclass(frozen=True)
class Stores:
    """What is damaged: the finished study, with what can be read of it; and stores with an unfinished run each."""

    finished: tuple[Path, Readings]
    unfinished: tuple[tuple[Path, Experiment], ...]


@cache
def prepare(reference: Place) -> Stores:
    """Make the stores, once for each place of a reference and next to it."""
    keep_often()
    folder = reference.folder.with_name("to-be-flipped")
    root = folder / "finished"
    shutil.copytree(reference.root, root)
    readings(root)  # the first time makes the index
    found = readings(root)
    assert not any(one.error for one in found.values()), "cannot be read without any fault"
    unfinished = []
    for moment in _KILLED_AT:
        place = Place(folder / f"unfinished-{moment.place}".replace(" ", "-"))
        place.disk.mkdir(parents=True)
        store, all_of_it = Store(place.root), STUDY.experiments_of(PROFILE)
        plan(all_of_it, store, chunks=2)
        crew = Alone(place)
        crew.turn(Fault(DRIVER, moment))
        begun = [one for one in all_of_it if one.cell not in store and _has_chunks(store, one)]
        assert begun, f"no run was left unfinished by the kill at {moment}"
        unfinished.append((place.root, begun[0]))
    return Stores((root, found), tuple(unfinished))


def _has_chunks(store: Store, one: Experiment) -> bool:
    return any((store.root / one.cell.address / "state").glob("chunk-*"))


def files_of(root: Path) -> list[Path]:
    """Return the files in which a bit may be flipped: all but those that hold nothing."""
    return sorted(path for path in root.rglob("*") if path.is_file() and path.stat().st_size and path.name != "lock")


def flip(path: Path, bit: int) -> None:
    """Change one bit of a file, but not its date, as a disk does."""
    status, content = path.stat(), bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def case(number: int, seed: int, expected: Reference, folder: Path) -> Case:
    """Flip one bit and judge what is read, or what the training makes of it."""
    chance, found, stores = random.Random(f"{seed} bit flip {number}"), Case(), prepare(expected.place)
    if chance.random() < _UNFINISHED_SHARE:
        root, one = chance.choice(stores.unfinished)
        copy, kind = folder / "copy", "unfinished"
        shutil.copytree(root, copy)
        path, bit = _draw(copy, one.cell.address, chance)
        flip(path, bit)
        noticed, found.cost = _train(copy, one, path, expected)
    else:
        (root, readable), kind = stores.finished, "finished"
        path, bit = _draw(root, "", chance)
        index = root / "index"
        with _restored(path, *index.iterdir()):
            if chance.random() < 0.5 and path.parent != index:
                shutil.rmtree(index)  # so that everything is read from the runs
            flip(path, bit)
            noticed, found.cost = differences(readable, readings(root), path)
            name = str(path.relative_to(root))
            if not noticed and name.partition("/")[0] not in ("index", "studies"):
                found.cost.append("nothing says that a file of a finished run is damaged")
        copy = root
    name = str(path.relative_to(copy))
    act = "detected" if noticed else "harmless"
    found.faults = [Struck(kind, 0, _kind_of(name), f"{name}, bit {bit}", act)]
    return found


def _draw(root: Path, below: str, chance: random.Random) -> tuple[Path, int]:
    """Draw a kind of file, a file of it, and one of its bits."""
    files = files_of(root / below)
    kinds = [_kind_of(str(path.relative_to(root))) for path in files]
    kind = chance.choice(sorted(set(kinds)))
    path = chance.choice([path for path, its in zip(files, kinds, strict=True) if its == kind])
    return path, chance.randrange(8 * path.stat().st_size)


@contextmanager
def _restored(*paths: Path) -> Iterator[None]:
    """Put files back as they are, with their dates."""
    kept = {path: (path.read_bytes(), path.stat()) for path in paths}
    try:
        yield
    finally:
        for path, (content, status) in kept.items():
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def _train(root: Path, one: Experiment, path: Path, expected: Reference) -> tuple[bool, list[str]]:
    """Go on with an unfinished run; return whether anything says that a file is damaged, and what is lost.

    Where the error names a remedy, that is tried.
    """
    store, notes = Store(root), []

    def report(status: Status) -> None:
        if status.note:
            notes.append(status.note)

    def train() -> None:
        run([one], store, workers=1, report=report, keep_every=0.0)

    lines = store.find(one.cell.address).problems()
    cost = [f"a problem of several lines: {line}" for line in lines if "\n" in line]
    try:
        train()
    except AnchorlabError as error:
        lines.append(str(error))
        if "\n" in str(error) or settled(path) not in settled(error):
            cost.append(f"the error does not name the file in one line: {error}")
        if remove := re.search("anchorlab runs remove ([0-9a-f]+)", str(error)):
            store.remove(remove[1])
        try:
            train()
        except AnchorlabError as again:
            cost.append(f"the remedy does not help: {again}")
    except Exception as error:  # noqa: BLE001 - that is what is looked for
        cost.append(f"an error without a remedy: {type(error).__name__}: {error}")
    found = outcome_of_runs(root) if not cost else {}
    for name, content in expected.outcome.items():
        if name.startswith(one.cell.address) and not cost and found.get(name) != content:
            cost.append(f"{name} has other bytes")
    return bool(lines or notes), cost


def _kind_of(name: str) -> str:
    top = name.partition("/")[0]
    return top if top == "index" else place_of(name)
