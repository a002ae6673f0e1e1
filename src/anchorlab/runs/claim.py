"""Claims: directories that a process says it is working in, by a file that it renews as long as it lives.

Locks of the kernel hold between the processes of one machine. A claim holds between machines that share a folder: one
that was not renewed for the seconds of its lease is free, and so is that of a process of this machine that has ended.
"""

import os
import secrets
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from anchorlab.errors import StoreError
from anchorlab.plain import is_plain_folder, read_plain
from anchorlab.runs.files import file_time, json_in, read_json, write_json

LEASE = 120.0
"""Seconds after which a claim that was not renewed is free: longer than a shared file system remembers what it read."""

LONGEST_LEASE = 3600.0
"""The longest lease that a claim can have, an hour; a claim with a longer one holds nothing."""

NAME = "claim.json"

# The tokens of the claims that this process holds: a file that it could not remove claims nothing.
_OURS: set[str] = set()


@dataclass(frozen=True)
class Owner:
    """Who claims a directory: a token of its own, the machine, and the process there with the time that it started."""

    token: str
    host: str
    machine: str
    process: int
    started: str

    @classmethod
    def new(cls) -> "Owner":
        """Return this process under a new token."""
        process = os.getpid()
        return cls(secrets.token_hex(8), os.uname().nodename, _machine(), process, _started(process))

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}"

    @property
    def ended(self) -> bool:
        """Whether it ran on this machine and is no longer there, or was this process, which has let go of it."""
        if self.process == os.getpid() and self.machine == _machine():
            return self.token not in _OURS
        return self.machine == _machine() and _started(self.process) != self.started


class Claim:
    """The claim of this process on a directory; it renews itself until it is released."""

    def __init__(self, directory: Path, lease: float = LEASE) -> None:
        self.directory, self.owner, self.lease = directory, Owner.new(), min(lease, LONGEST_LEASE)
        self._released = threading.Event()

    def write(self) -> None:
        """Write the claim, and begin to renew it. Errors: `StoreError` if the directory is not there."""
        _OURS.add(self.owner.token)
        write_json(self.directory, NAME, {**asdict(self.owner), "lease": self.lease})
        threading.Thread(target=self._renew, daemon=True).start()

    @property
    def holds(self) -> bool:
        """Whether the directory is there and nobody else has claimed it since."""
        with suppress(StoreError):
            return bool(_read(self.directory).get("token") == self.owner.token)
        return False

    def release(self) -> None:
        """Let go of the directory."""
        self._released.set()
        _OURS.discard(self.owner.token)
        if self.holds:
            with suppress(OSError):  # it is free as soon as this process ends, or its lease
                (self.directory / NAME).unlink()

    def _renew(self) -> None:
        while not self._released.wait(self.lease / 8):
            with suppress(OSError):
                os.utime(self.directory / NAME)


def holder(directory: Path) -> str | None:
    """Return who works in a directory, in words, or None if it is free.

    A damaged claim, or a claim with other fields than ours, holds nothing, however new it is. A claim that cannot be
    opened holds for `LEASE` after its last renewal.
    """
    path = directory / NAME
    if not is_plain_folder(directory):
        return None
    try:
        # A time in the future counts as old: no honest claim has one.
        age = abs(file_time(directory.parent) - path.lstat().st_mtime)
    except FileNotFoundError:
        return None
    try:
        content = read_plain(path)
    except FileNotFoundError:
        return None
    except OSError:  # another user's, or on a disk that does not answer: its owner may well be alive
        return "another process" if age <= LEASE else None
    try:
        owner, lease = _parsed(json_in(path, content, ""))
    except (StoreError, ValueError):  # a claim is renamed into its place whole, and its owner stops once it is not
        return None
    return None if owner.ended or age > lease else str(owner)


def _parsed(data: Mapping[str, Any]) -> tuple[Owner, float]:
    """Return what a claim says. Errors: `ValueError` for one that a claim of ours cannot say."""
    texts = [data.get(name) for name in ("token", "host", "machine", "started")]
    process, lease = data.get("process"), data.get("lease")
    if all(isinstance(one, str) for one in texts) and isinstance(process, int) and isinstance(lease, int | float):
        owner = Owner(**{field.name: data[field.name] for field in fields(Owner)})
        if process > 0 and 0 < lease <= LONGEST_LEASE:
            return owner, float(lease)
    raise ValueError("no claim")


def _read(directory: Path) -> dict[str, Any]:
    return read_json(directory / NAME, "")


@cache
def _machine() -> str:
    """Return what tells this machine, since it was started, from others; and one container there from the next."""
    parts = [os.uname().nodename]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    with suppress(OSError):
        parts.append(str(Path("/proc/self/ns/pid").stat().st_ino))
    return " ".join(parts)


def _started(process: int) -> str:
    """Return when a process of this machine started, in ticks; nothing where there is none, or where it has ended."""
    try:
        state, *fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return "" if state == "Z" else fields[18]
    except OSError:
        pass
    if Path("/proc/self").exists():
        return ""
    try:  # a system without /proc
        os.kill(process, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    return "running"
