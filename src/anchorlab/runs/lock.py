"""Locks between processes of one machine, held by the kernel: a killed process leaves none behind."""

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from anchorlab.errors import InUseError, StoreError
from anchorlab.plain import read_data

READ_ONLY = "read-only"
"""The name of a file that makes the store in its folder read-only: no lock can be taken there."""

_LONGEST_NAME = 1000  # bytes of the holder's name in the lock file
_PAUSE = 0.1  # seconds between two tries
_TOLD_EVERY = 0.5  # seconds


@contextmanager
def locked(path: Path, wait: float = 0.0, waiting: Callable[[str], None] | None = None) -> Iterator[None]:
    """Hold the lock of a file inside `with`. A thread can take a lock that it holds again.

    The file stays, since removing it while others wait could let two of them hold the lock. On a network file system
    the lock may hold within one machine only.

    Args:
        path: the lock file; its folder is created if needed
        wait: seconds to wait for another process that holds it; `math.inf` for no limit
        waiting: called from time to time, while waiting, with the name of the process that holds it

    Errors: `InUseError` that names the holder; `StoreError` if the file cannot be written, or belongs to a read-only
    store.
    """
    folder = path.parent
    for each in (folder, folder.parent):
        if (each / READ_ONLY).exists():
            raise StoreError(f"{each}: this store is read-only; name another one")
    lock = FileLock(path, is_singleton=True, fallback_to_soft=False)
    end = time.monotonic() + wait
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held = lock.is_locked
        while True:
            left = max(0.0, end - time.monotonic())
            try:
                lock.acquire(timeout=min(left, _TOLD_EVERY), poll_interval=_PAUSE)
                break
            except Timeout:
                if left == 0:
                    problem = f"in use by {_named(path)}; wait until it ends, or end it"
                    raise InUseError(f"{folder}: {problem}") from None
                if waiting is not None:
                    waiting(_named(path))
    except OSError as error:
        what = "this file system has no locks" if error.errno == errno.ENOSYS else "cannot be written"
        raise StoreError(f"{path}: {what}: {error.strerror or error}") from error
    try:
        if not held:
            with suppress(OSError):  # a full disk: others then see no name
                path.write_text(f"process {os.getpid()} on {os.uname().nodename}")
        yield
    finally:
        lock.release()


def _named(path: Path) -> str:
    try:
        name = read_data(path, _LONGEST_NAME).decode()
    except (OSError, ValueError):
        name = ""
    return name if name.isprintable() and name else "another process"
