"""Hostile stores: each attack is opened by every command, in a process of its own with little memory and time."""

import os
import random
import re
import resource
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from tests.faults.case import Case
from tests.faults.crews import end
from tests.faults.judge import Reference
from tests.faults.moments import Struck
from tests.faults.roles import start
from tests.hostile.attacks import ATTACKS, attack
from tests.hostile.store import (
    COMMANDS,
    MORE_COMMANDS,
    opened,
    prepare,
    sentinels,
    signs_that_a_terminal_obeys,
    snapshot,
)

_SECONDS = 10  # of the processor
_PATIENCE = 60.0  # seconds by the clock, for a process that waits for a pipe; other processes may be at work
_MEMORY = 2**30  # bytes beyond what a process has at its start
_MOST_SAID = 100_000  # bytes
MOST = len(ATTACKS) * len((*COMMANDS, *MORE_COMMANDS))
"""How many cases there are."""

_LONG_AGO = 10**18  # nanoseconds: a date


def case(number: int, seed: int, expected: Reference, folder: Path) -> Case:
    """Let one command open one attacked store, and judge what it says and what it touches."""
    name, command = _pairs(seed)[number]
    found, words = Case(), " ".join(command)
    root, outside, here = (folder / part for part in ("store", "outside", "here"))
    shutil.copytree(_prepared(folder.parent / "hostile-prepared"), root)
    sentinels(outside, root)
    here.mkdir()
    attack(name, root, outside)
    found.cost = [
        f"{words}, {name}: {wrong}" for wrong in judged(folder, root, lambda: start(_open, root, here, command))
    ]
    found.faults = [Struck(words, 0, name, act="hostile")]
    return found


def _prepared(root: Path) -> Path:
    """Return the store as it is before the attacks, which is made once."""
    if not root.exists():
        child = start(prepare, root)
        child.join()
        assert child.exitcode == 0, "the store cannot be made"
    return root


def judged(folder: Path, root: Path, launch: Callable[[], Any]) -> list[str]:
    """Return in words what is wrong with a process that opens a store.

    Args:
        folder: holds the store, `outside`, and `here`, the process's own folder
        root: the store
        launch: starts the process, whose output is `here.said`
    """
    before = _all_but(root, folder)
    _date_back(folder / "outside")
    child = launch()
    ending = _ending(child)
    end(child)
    read = list(_read(folder / "outside"))
    said = (folder / "here.said").read_bytes().decode(errors="replace")
    (folder / "here.said").unlink()
    now = _all_but(root, folder)
    changed = {name for name in before.keys() | now.keys() if before.get(name) != now.get(name)}
    return [
        *(f"{Path(name).relative_to(folder)} was written or removed" for name in sorted(changed)),
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
    lists_them = "\nkept: " in said  # as `runs prune` does: a line for each run that it could not remove
    control = signs_that_a_terminal_obeys(said)
    return [
        *([f"exit code {code}"] if code not in (0, 1, 2) else []),
        *(["a traceback"] if "Traceback" in said else []),
        *(["it runs out of memory"] if "out of memory" in said else []),
        *([f"{len(errors)} lines of errors"] if code == 2 and len(errors) != 1 and not lists_them else []),
        *([f"signs that a terminal obeys: {control}"] if control else []),
        *([f"{len(said)} signs of output"] if len(said) > _MOST_SAID else []),
    ]


def _open(root: Path, here: Path, command: tuple[str, ...]) -> None:
    torch.set_num_threads(1)
    confined(here, lambda: opened(root, command))


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


def _all_but(root: Path, folder: Path) -> dict[str, tuple[object, ...]]:
    """Return all that a command could have changed in a folder, but for the store in it."""
    return snapshot(*(path for path in folder.iterdir() if path != root))


def _date_back(folder: Path) -> None:
    """Give files and folders an old date of access, which the system changes when they are read."""
    for path in sorted([folder, *folder.rglob("*")], reverse=True):
        os.utime(path, ns=(_LONG_AGO, path.lstat().st_mtime_ns), follow_symlinks=False)


def _read(path: Path) -> Iterator[Path]:
    """Yield what was read since its date was put back, a folder before this function itself lists it."""
    if path.lstat().st_atime_ns != _LONG_AGO:
        yield path
    if path.is_dir():
        for inside in path.iterdir():
            yield from _read(inside)


def _pairs(seed: int) -> list[tuple[str, tuple[str, ...]]]:
    """Return all attacks with all commands, in an order that the seed chooses."""
    pairs = [(name, command) for name in ATTACKS for command in (*COMMANDS, *MORE_COMMANDS)]
    random.Random(f"{seed} hostile").shuffle(pairs)
    return pairs
