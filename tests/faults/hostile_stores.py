"""Hostile stores: each attack is opened by every command, in a process of its own with little memory and time."""

import os
import random
import re
import resource
import shutil
import signal
import stat
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

from anchorlab.cli import main
from anchorlab.errors import AnchorlabError
from tests.faults.attacks import ATTACKS, first_run
from tests.faults.case import Case
from tests.faults.crews import end
from tests.faults.judge import Reference
from tests.faults.moments import Struck
from tests.faults.roles import Place, start
from tests.faults.study import run_the_study

COMMANDS: dict[str, tuple[str, ...]] = {
    "list": ("runs", "--json"),
    "list of fields": ("runs", "--columns", "run,label,state,MB,model.layers,metrics.test.loss"),
    "selection": ("runs", "--where", "test.loss>0"),
    "show": ("runs", "show", "RUN"),
    "check": ("runs", "check"),
    "count what can be pruned": ("runs", "prune"),
    "prune": ("runs", "prune", "orphans", "superseded", "unfinished", "damaged", "--yes"),
    "remove": ("runs", "remove", "RUN", "--yes"),
    "pack": ("runs", "pack"),
    "unpack": ("runs", "unpack"),
    "claims": ("claims", "--measured"),
    "report": ("report",),
    "browse": ("browse",),
    "inspect": ("inspect", "RUN"),
    "study": (),
}
"""How a store is opened; the study is the only one that has no command."""

_SECONDS = 10  # of the processor
_PATIENCE = 60.0  # seconds by the clock, for a process that waits for a pipe; other processes may be at work
_MEMORY = 2**30  # bytes beyond what a process has at its start
_MOST_SAID = 100_000  # bytes
_LONG_AGO = 1e9  # a date


def case(number: int, seed: int, expected: Reference, folder: Path) -> Case:
    """Let one command open one attacked store, and judge what it says and what it touches."""
    attack, command = _pairs(seed)[number]
    found, began, place = Case(f"hostile:{number}"), time.monotonic(), Place(folder)
    outside, here = folder / "outside", folder / "here"
    shutil.copytree(expected.place.root, place.root)
    address = first_run(place.root).name
    shutil.copytree(place.root / address, outside / "run")
    for path in (outside / "folder" / "file", outside / "secret"):
        path.parent.mkdir(exist_ok=True)
        path.write_text("a secret that nobody may read")
    here.mkdir()
    ATTACKS[attack](place.root, outside)
    arguments = [address if one == "RUN" else one for one in COMMANDS[command]]
    found.cost = judged(folder, place.root, lambda: start(_open, place.root, here, arguments))
    found.faults = [Struck(command, 0, attack, act="hostile")]
    found.cost = [f"{command}, {attack}: {words}" for words in found.cost]
    found.seconds = time.monotonic() - began
    if not found.cost:
        shutil.rmtree(folder)
    return found


def judged(folder: Path, root: Path, opened: Callable[[], Any]) -> list[str]:
    """Return in words what is wrong with a process that opens a store.

    Args:
        folder: all files that may tell of it: `outside` and `here` beside the store
        root: the store
        opened: starts the process, whose output is `here.said`
    """
    before = _outside(folder, root)
    _date_back(folder / "outside")
    child = opened()
    ending = _ending(child)
    end(child)
    read = list(_read(folder / "outside"))
    said = (folder / "here.said").read_bytes().decode(errors="replace")
    (folder / "here.said").unlink()
    now = _outside(folder, root)
    return [
        *(f"{name} was written or removed" for name in sorted(dict(before.items() ^ now.items()))),
        *(f"{path.relative_to(folder)} was read" for path in read),
        *([ending] if isinstance(ending, str) else _wrong_words(ending, said)),
    ]


def _ending(process: Any) -> int | str:
    """Return the exit code of a process, or in words why it was not waited for."""
    until, first = time.monotonic() + _PATIENCE, _most_memory(process.pid)
    while process.exitcode is None:
        if _most_memory(process.pid) > first + _MEMORY:
            return f"it takes more than {_MEMORY // 2**20} MB"
        if time.monotonic() > until:
            return f"it has not ended after {_PATIENCE:.0f} s"
        process.join(0.02)
    return int(process.exitcode)


def _most_memory(process: int) -> int:
    """Return the most memory that a process has had, in bytes; 0 when it has ended."""
    with suppress(OSError):
        if found := re.search(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{process}/status").read_text()):
            return int(found[1]) * 1024
    return 0


def _wrong_words(code: int, said: str) -> list[str]:
    """Return in words what is wrong with how a command has ended, and with what it has said."""
    if code == -signal.SIGXCPU:
        return [f"it has not ended after {_SECONDS} s of the processor"]
    errors = [line for line in said.splitlines() if line.startswith("anchorlab: ")]
    control = sorted({sign for sign in said if (ord(sign) < 32 and sign not in "\n\t") or 127 <= ord(sign) < 160})
    return [
        *([f"exit code {code}"] if code not in (0, 1, 2) else []),
        *(["a traceback"] if "Traceback" in said else []),
        *(["it runs out of memory"] if "out of memory" in said else []),
        *([f"{len(errors)} lines of errors"] if code == 2 and len(errors) != 1 else []),
        *([f"signs that a terminal obeys: {control}"] if control else []),
        *([f"{len(said)} signs of output"] if len(said) > _MOST_SAID else []),
    ]


def _open(root: Path, here: Path, arguments: list[str]) -> None:
    """Open a store in the folder `here`; no arguments stand for the study."""
    torch.set_num_threads(1)
    confined(here, lambda: main([*arguments, "--store", str(root)]) if arguments else _study(root))


def confined(here: Path, work: Callable[[], int]) -> None:
    """Do some work in a folder, within the time of the processor, and end with the exit code that it returns."""
    os.chdir(here)
    with here.with_name("here.said").open("wb") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    used = int(time.process_time())
    resource.setrlimit(resource.RLIMIT_CPU, (used + _SECONDS, used + _SECONDS + 5))
    code = 70
    try:
        code = work()
    except BaseException:  # noqa: BLE001 - it is judged
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _study(root: Path) -> int:
    try:
        run_the_study(root)
    except AnchorlabError as error:
        print(f"anchorlab: {error}", file=sys.stderr)
        return 2
    return 0


def _every(folder: Path) -> list[Path]:
    return [folder, *folder.rglob("*")]


def _date_back(folder: Path) -> None:
    """Give files and folders an old date of access, which the system changes when anyone reads them."""
    for path in sorted(_every(folder), reverse=True):
        status = path.lstat()
        os.utime(path, (_LONG_AGO, status.st_mtime), follow_symlinks=False)


def _read(path: Path) -> Iterator[Path]:
    """Yield what was read since its date was put back, a folder before this function itself lists it."""
    if path.lstat().st_atime != _LONG_AGO:
        yield path
    if path.is_dir():
        for inside in path.iterdir():
            yield from _read(inside)


def _outside(folder: Path, root: Path) -> dict[str, str]:
    """Return everything below a folder but for the store, each with what would tell that it was changed."""
    found = {}
    for path in _every(folder):
        if path == root or root in path.parents:
            continue
        status = path.lstat()
        content = sha256(path.read_bytes()).hexdigest() if stat.S_ISREG(status.st_mode) else ""
        found[str(path.relative_to(folder))] = f"{status.st_mode} {content}"
    return found


def _pairs(seed: int) -> list[tuple[str, str]]:
    """Return all attacks with all commands, in an order that the seed chooses."""
    pairs = [(attack, command) for attack in ATTACKS for command in COMMANDS]
    random.Random(f"{seed} hostile").shuffle(pairs)
    return pairs


def cases(count: int, seed: int, expected: Reference, folder: Path) -> Iterator[Case]:
    """Yield so many cases, or all that there are."""
    for number in range(min(count, len(_pairs(seed)))):
        yield case(number, seed, expected, folder / f"hostile-{number}")
