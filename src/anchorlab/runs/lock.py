"""Locks between processes, held by the kernel: a killed process leaves none behind."""

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path

from anchorlab.errors import InUseError, StoreError

_PAUSE = 0.05  # seconds between two tries


class Lock:
    """A lock on the directory of `path`, a file that stays there when the lock is released.

    Removing the file while others wait for it could let two of them hold the lock on a shared file system.
    A lock that is not held can be pickled and sent to another process.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None
        self._owner: int | None = None

    @property
    def held(self) -> bool:
        """Whether this process holds the lock."""
        return self._descriptor is not None and self._owner == os.getpid()

    @property
    def taken(self) -> bool:
        """Whether any process holds the lock; nothing is created to find out."""
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(descriptor)
        return False

    def acquire(self, wait: float = 0.0) -> None:
        """Take the lock, waiting up to `wait` seconds for another holder; create its directory if needed.

        Errors: `StoreError` that names the process holding the lock, and if the directory cannot be written.
        """
        if self.held:
            raise StoreError(f"{self.path.parent}: already open in this process; close it first")
        deadline = time.monotonic() + wait
        while not self._try():
            if (left := deadline - time.monotonic()) <= 0:
                owner = self._read_owner()
                raise InUseError(f"{self.path.parent}: in use by {owner}; wait until it ends, or end it")
            time.sleep(min(_PAUSE, left))

    def release(self) -> None:
        """Release the lock; do nothing if this process does not hold it."""
        if self._descriptor is None or not self.held:
            return
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        os.close(self._descriptor)
        self._descriptor = self._owner = None

    def remove(self) -> None:
        """Remove the file of a lock that this process holds, where nobody will need the lock again."""
        with suppress(OSError):  # others find it, and take it, and see that there is nothing to do
            if self._descriptor is not None and self._is_at_path(self._descriptor):
                self.path.unlink()

    def _try(self) -> bool:
        """Try once to take the lock and return whether this process now holds it.

        Starts again if the file was removed or moved between opening and locking.
        """
        while True:
            try:
                self.path.parent.mkdir(exist_ok=True)
            except OSError as error:
                raise StoreError(f"{self.path.parent}: cannot be created: {error.strerror}") from error
            try:
                descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise StoreError(f"{self.path}: cannot be written: {error.strerror}") from error
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                return False
            except OSError as error:
                os.close(descriptor)
                raise StoreError(f"{self.path}: this file system has no locks ({error.strerror})") from error
            if self._is_at_path(descriptor):
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"process {os.getpid()} on {os.uname().nodename}".encode(), 0)
                self._descriptor, self._owner = descriptor, os.getpid()
                return True
            os.close(descriptor)

    def _is_at_path(self, descriptor: int) -> bool:
        with suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(descriptor), self.path.stat())
        return False

    def _read_owner(self) -> str:
        for _ in range(10):  # a holder writes its name just after locking
            with suppress(OSError):
                if name := self.path.read_text():
                    return name
            time.sleep(0.01)
        return "another process"
