"""Power cuts: all processes end at once, and the disk loses what was written last; then the study goes on.

There are two kinds. After the first, whatever was not synchronised may be lost: the store shows no trace of the cut,
and no file may be damaged. After the second, up to five of the newest files are empty, synchronised or not, as on disks
that promise too much: the study goes on from an older state, or names the damaged file and a remedy that works.
"""

import os
import random
import re
from contextlib import closing, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

from anchorlab.cli import main
from anchorlab.errors import AnchorlabError
from anchorlab.runs import Store
from tests.faults.case import Case
from tests.faults.crews import Crew
from tests.faults.durable import Account, PowerCut, begin_account
from tests.faults.judge import Reference, is_spare, unclear, unreadable, wrong
from tests.faults.kills import CREWS, draw
from tests.faults.moments import struck
from tests.faults.roles import Place, read_said

KINDS = NEWEST, UNSYNCHRONISED = "newest-emptied", "unsynchronised-lost"

_BACKENDS = ("local", "local", "folder")
_BY_TIME = 0.5  # of the cuts; the others come at an operation on files
_MOST_EMPTIED = 5
_REMEDY = re.compile("anchorlab runs remove ([0-9a-f]+)")


def case(kind: str, number: int, seed: int, expected: Reference, folder: Path) -> Case:
    """Run one study to its end through one or two power cuts, and judge what it says and what it leaves."""
    backend = _BACKENDS[number % len(_BACKENDS)]
    chance, found, place = random.Random(f"{seed} {kind} {number}"), Case(), Place(folder)
    place.root.mkdir(parents=True)
    if kind == UNSYNCHRONISED:
        begin_account(place.root, place.account)
    damaged: list[Path] = []
    for _ in range(chance.choice((1, 1, 2))):
        before = len(struck(place.record))
        with closing(CREWS[backend](place)) as crew:
            crew.turn(draw(CREWS[backend], expected, chance, _BY_TIME))
        cut = struck(place.record)[before:]
        if kind == NEWEST:
            newest = empty_newest(place.root, chance) if cut else []
            damaged += newest
            found.lost += [f"{path.relative_to(place.root)} is empty" for path in newest]
            found.cost += [*unnoticed(place.root, damaged), *wrong_numbers(place.root, expected)]
            cut = cut if newest else []
        elif cut:
            was_published = published(place.root)
            found.lost += PowerCut(place.root, Account(place.account), chance).happen()
            begin_account(place.root, place.account)
            found.cost += unreadable(place)
            found.cost += [f"{name} was lost" for name in sorted(was_published - published(place.root))]
        found.faults += cut
        if not cut:
            found.late += 1
            break
    with closing(CREWS[backend](place)) as crew:
        found.cost += resume(crew, place, damaged)
        found.cost += wrong(place, expected) if not found.cost else unclear(place)
    return found


def empty_newest(root: Path, chance: random.Random) -> list[Path]:
    """Cut up to five of the newest files of a store to nothing, but keep their dates; return them."""
    files = [path for path in root.rglob("*") if path.is_file() and path.stat().st_size and not _is_lock(path)]
    newest = sorted(files, key=lambda path: path.stat().st_mtime_ns)[-chance.randint(1, _MOST_EMPTIED) :]
    for path in newest:
        status = path.stat()
        os.truncate(path, 0)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    return newest


def _is_lock(path: Path) -> bool:
    return path.name in ("lock", ".lock-taken")


def unnoticed(root: Path, damaged: list[Path]) -> list[str]:
    """Return the damaged files of finished runs that `anchorlab runs check` does not name."""
    out = StringIO()
    with redirect_stdout(out), redirect_stderr(out):
        code = main(["runs", "check", "--store", str(root)])
    said = out.getvalue()
    of_finished = [path for path in damaged if path.exists() and _is_published(root, path)]
    lists = [path for path in of_finished if path.name == "manifest.json"]
    unlisted = {path for path in of_finished for one in lists if one.parent in path.parents} - {*lists}
    of_finished = [path for path in of_finished if path not in unlisted]  # what is in a run, its list alone can say
    silent = [path for path in of_finished if path.parent.name not in said or path.name not in said]
    return [
        *(f"`runs check` does not name {path.relative_to(root)}" for path in silent),
        *(["`runs check` says that all is well"] if of_finished and code == 0 else []),
    ]


def _is_published(root: Path, path: Path) -> bool:
    run, _, rest = str(path.relative_to(root)).partition("/")
    return (root / run / "manifest.json").exists() and not rest.startswith("state/") and not is_spare(path.name)


def published(root: Path) -> set[str]:
    """Return which runs are finished and which findings are kept: these must survive a power cut."""
    found = [*root.glob("*/manifest.json"), *root.glob("studies/*/*/findings.json")]
    return {str(path.relative_to(root)) for path in found}


def wrong_numbers(root: Path, expected: Reference) -> list[str]:
    """Return which finished runs give other metrics than those of the reference, in place of an error."""
    cost, reference = [], Store(expected.place.root)
    for run in Store(root).runs():
        try:
            if run.finished and not run.metrics().equals(reference.find(run.address).metrics()):
                cost.append(f"{run.address} gives wrong numbers")
        except AnchorlabError:
            continue
    return cost


def resume(crew: Crew, place: Place, damaged: list[Path]) -> list[str]:
    """Let a study come to its end, and follow the remedy of each error that names a damaged file.

    Returns: in words, the errors that name none, or whose remedy does not help; what the study has lost is not looked
    at.
    """
    for _ in range(len(damaged) + 1):
        crew.turn(None)
        if (said := read_said(place)) is None or not said.kind:
            return []
        remedies = set(_REMEDY.findall(said.words))
        if not remedies or not any(path.name in said.words for path in damaged):
            return [f"the error does not name a damaged file and what helps: {said}"]
        for address in remedies:
            try:
                Store(place.root).remove(address)
            except AnchorlabError as error:
                return [f"the remedy does not help: {error}"]
    return [f"the remedy does not help: {read_said(place)}"]
