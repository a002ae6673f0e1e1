"""Leases: a process marks a directory as its own with a file that it renews for as long as it lives.

Kernel locks work between the processes of one machine. Leases also work between machines that share a folder. A lease
expires if it is not renewed in time; a lease of a process on this machine also ends with that process.
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
from anchorlab.runs.atomic_files import file_time, json_in, read_json, write_json

LEASE = 120.0
"""Seconds without renewal after which a lease expires; longer than a shared file system caches what it read."""

LONGEST_LEASE = 3600.0
"""The longest duration of a lease in seconds, one hour; a longer one is invalid."""

NAME = "claim.json"

# The tokens of the leases that this process holds, so that a file it failed to remove holds nothing.
_OURS: set[str] = set()


@dataclass(frozen=True)
class Owner:
    """Who leases a directory: a unique token, the machine, and the process with its start time (process ids recur)."""

    token: str
    host: str
    machine: str
    process: int
    started: str

    @classmethod
    def new(cls) -> "Owner":
        """Return this process as an owner with a new token."""
        process = os.getpid()
        return cls(secrets.token_hex(8), os.uname().nodename, _machine(), process, _started(process))

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}"

    @property
    def ended(self) -> bool:
        """Whether the owner died on this machine, or is this process and has released the lease."""
        if self.process == os.getpid() and self.machine == _machine():
            return self.token not in _OURS
        return self.machine == _machine() and _started(self.process) != self.started


class Lease:
    """The lease of this process on a directory; it renews itself until it is released."""

    def __init__(self, directory: Path, lease: float = LEASE) -> None:
        self.directory, self.owner, self.lease = directory, Owner.new(), min(lease, LONGEST_LEASE)
        self._released = threading.Event()

    def write(self) -> None:
        """Write the lease and start renewing it. Errors: `StoreError` if the directory does not exist."""
        _OURS.add(self.owner.token)
        write_json(self.directory, NAME, {**asdict(self.owner), "lease": self.lease})
        threading.Thread(target=self._renew, daemon=True).start()

    @property
    def holds(self) -> bool:
        """Whether the directory still exists and still holds this lease."""
        with suppress(StoreError):
            return bool(_read(self.directory).get("token") == self.owner.token)
        return False

    def release(self) -> None:
        """Stop renewing the lease, and remove its file if it is still this lease's."""
        self._released.set()
        _OURS.discard(self.owner.token)
        if self.holds:
            with suppress(OSError):  # then the lease ends with this process or in time
                (self.directory / NAME).unlink()

    def _renew(self) -> None:
        while not self._released.wait(self.lease / 8):
            with suppress(OSError):
                os.utime(self.directory / NAME)


def holder(directory: Path) -> str | None:
    """Return who works in a directory, as text, or None if it is free.

    A damaged lease, or a lease with other fields than ours, is ignored, however new it is. A lease that cannot be
    opened counts for `LEASE` seconds after its last renewal.
    """
    path = directory / NAME
    if not is_plain_folder(directory):
        return None
    try:
        # A time in the future counts as old: no honest lease has one.
        age = abs(file_time(directory.parent) - path.lstat().st_mtime)
    except FileNotFoundError:
        return None
    try:
        content = read_plain(path)
    except FileNotFoundError:
        return None
    except OSError:  # another user's file, or a disk that does not respond: the owner may be alive
        return "another process" if age <= LEASE else None
    try:
        owner, lease = _parsed(json_in(path, content, ""))
    except (StoreError, ValueError):  # damaged, not half-written: leases are renamed into place
        return None
    return None if owner.ended or age > lease else str(owner)


def _parsed(data: Mapping[str, Any]) -> tuple[Owner, float]:
    """Return the owner and the duration of a lease. Errors: `ValueError` for values that no lease of ours has."""
    texts = [data.get(name) for name in ("token", "host", "machine", "started")]
    process, lease = data.get("process"), data.get("lease")
    if all(isinstance(one, str) for one in texts) and isinstance(process, int) and isinstance(lease, int | float):
        owner = Owner(**{field.name: data[field.name] for field in fields(Owner)})
        if process > 0 and 0 < lease <= LONGEST_LEASE:
            return owner, float(lease)
    raise ValueError("no lease")


def _read(directory: Path) -> dict[str, Any]:
    return read_json(directory / NAME, "")


@cache
def _machine() -> str:
    """Return an identity of this machine: host name, boot id and process-id namespace, which separates containers."""
    parts = [os.uname().nodename]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    with suppress(OSError):
        parts.append(str(Path("/proc/self/ns/pid").stat().st_ino))
    return " ".join(parts)


def _started(process: int) -> str:
    """Return a local process's start time in clock ticks, empty if it does not exist or has ended.

    Systems without /proc give no start time; a live process there is only `running`.
    """
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
