"""What a power cut leaves of a store: all that was synchronised, and of everything else what chance decides.

A process that keeps account writes down what it makes durable: a file's content by `fsync` of the file, its name by
`fsync` of the folder. All else may be on the disk or not: new, renamed and removed names, and the content of a file,
which may be empty, cut off or whole. A renaming within a folder happens as a whole or not at all.
"""

import json
import os
import random
import shutil
import stat
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

_LOG = "log"


class _Node(NamedTuple):
    """A file or folder: its number on the disk, how many had that number before, and whether it is a folder."""

    number: int
    before: int
    is_folder: bool


_Names = dict[str, _Node]


def keep_account(root: Path, folder: Path) -> None:
    """Let this process write in `folder` what it makes durable, and keep there the content of each such file.

    `os.sync` makes all of the store in `root` durable.
    """
    synchronise, make = os.fsync, os.mkdir
    log = os.open(folder / _LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(**line: Any) -> None:
        os.write(log, (json.dumps(line) + "\n").encode())

    def noted_fsync(descriptor: int) -> None:
        synchronise(descriptor)
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode):
            note(folder=found.st_ino, names=_names(descriptor))
            return
        with suppress(FileExistsError):
            os.link(Path(f"/proc/self/fd/{descriptor}").readlink(), folder / str(found.st_ino))
        note(file=found.st_ino)

    def noted_mkdir(path: Any, *arguments: Any, **named: Any) -> None:
        make(path, *arguments, **named)
        note(new=os.stat(path, dir_fd=named.get("dir_fd")).st_ino)

    def noted_sync() -> None:
        os.write(log, _everything(root, folder).encode())

    os.fsync, os.mkdir, os.sync = noted_fsync, noted_mkdir, noted_sync  # type: ignore[assignment]


def begin_account(root: Path, folder: Path) -> None:
    """Write down that everything in a store is durable, as after a start of the machine."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / _LOG).write_text(_everything(root, folder))


def _everything(root: Path, folder: Path) -> str:
    """Return the lines that say that all of a store is durable, and keep the content of its files in `folder`."""
    lines = []
    for parent, _, names in os.walk(root):
        lines.append({"folder": Path(parent).stat().st_ino, "names": _names(parent)})
        for name in names:
            number = Path(parent, name).stat().st_ino
            if not (folder / str(number)).exists():  # of a file that was moved, both names may have survived
                os.link(Path(parent, name), folder / str(number))
            lines.append({"file": number})
    return "".join(json.dumps(line) + "\n" for line in lines)


def _names(folder: int | str) -> dict[str, tuple[int, bool]]:
    with os.scandir(folder) as found:
        return {one.name: (one.inode(), one.is_dir(follow_symlinks=False)) for one in found}


class Account:
    """What the processes of a store have made durable, as they wrote it down in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: set[int] = set()
        self._names: dict[_Node, _Names] = {}
        self._before: Counter[int] = Counter()
        for line in (folder / _LOG).read_text().splitlines():
            found = json.loads(line)
            if "new" in found:
                self._before[found["new"]] += 1
            elif "file" in found:
                self.files.add(found["file"])
            else:
                self._names[self.node(found["folder"], True)] = self.nodes(found["names"])

    def node(self, number: int, is_folder: bool) -> _Node:
        """Return the file or folder that has this number now."""
        return _Node(number, self._before[number] if is_folder else 0, is_folder)

    def nodes(self, names: Mapping[str, tuple[int, bool]]) -> _Names:
        """Return the files and folders that have these names now."""
        return {name: self.node(*found) for name, found in names.items()}

    def names(self, folder: _Node) -> _Names:
        """Return the names in a folder that are durable."""
        return self._names.get(folder, {})


class PowerCut:
    """Leaves of a store what a power cut may leave.

    Args:
        root: the store, in which no process works any more
        account: what is durable
        chance: decides about the rest
    """

    def __init__(self, root: Path, account: Account, chance: random.Random) -> None:
        self.root, self.account, self.chance = root, account, chance
        self.kept_share = chance.choice((0.0, 0.5, 0.5, 1.0))  # of the names that are not durable
        self.lost: list[str] = []
        self._places = {account.node(Path(parent).stat().st_ino, True): Path(parent) for parent, _, _ in os.walk(root)}

    def happen(self) -> list[str]:
        """Put what is left in place of the store; return in words what is not as it was."""
        left = self.root.with_name(f"{self.root.name}-left")
        self._folder(self.account.node(self.root.stat().st_ino, True), left)
        shutil.rmtree(self.root)
        left.rename(self.root)
        return self.lost

    def _folder(self, folder: _Node, to: Path) -> None:
        to.mkdir()
        place = self._places.get(folder)  # none if it was removed
        durable, now = self.account.names(folder), {} if place is None else self.account.nodes(_names(str(place)))
        is_kept: dict[_Node, bool] = {}
        for name in sorted({*durable, *now}):
            old, new = durable.get(name), now.get(name)
            node = new
            if old != new:
                changed = new or old
                assert changed is not None
                if not is_kept.setdefault(changed, self.chance.random() < self.kept_share):  # with its other name
                    node = old
                    self.lost.append(f"{self._shown(to / name)}: {_change(old, new)} was lost")
            if node is None:
                continue
            if node.is_folder:
                self._folder(node, to / name)
            else:
                self._file(node, None if place is None or node != new else place / name, to / name)

    def _file(self, file: _Node, now: Path | None, to: Path) -> None:
        if file.number in self.account.files:
            os.link(self.account.folder / str(file.number), to)
            return
        content = b"" if now is None else now.read_bytes()
        left = content[: int(len(content) * self.chance.choice((0, self.chance.random(), 1)))]
        to.write_bytes(left)
        if len(left) < len(content):
            self.lost.append(f"{self._shown(to)}: cut to {len(left)} of {len(content)} bytes")

    def _shown(self, path: Path) -> str:
        return str(path.relative_to(self.root.with_name(f"{self.root.name}-left")))


def _change(old: _Node | None, new: _Node | None) -> str:
    return "its beginning" if old is None else "its removal" if new is None else "its replacement"
