"""Locks between processes, held by the kernel: a killed process leaves none behind."""

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from anchorlab.errors import InUseError, StoreError
from anchorlab.plain import check_way, open_plain, read_plain
from anchorlab.runs.atomic_files import file_time, remove_temporaries

_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_LONGEST_NAME = 1000  # bytes of the holder's name in the lock file
_PAUSE = 0.05  # seconds between two tries
_PATIENCE = 60.0  # seconds to wait for another writer of the same few files


@contextmanager
def writing(directory: Path) -> Iterator[None]:
    """Hold the lock of a directory inside `with`, after removing the partial files of a killed writer.

    Errors: as `Lock.acquire`.
    """
    with locked(directory / "lock"):
        remove_temporaries(directory)
        yield


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock inside `with`, and remove its file afterwards. Errors: as `Lock.acquire`."""
    lock = Lock(path)
    lock.acquire(_PATIENCE)
    try:
        yield
    finally:
        lock.remove()
        lock.release()


class Lock:
    """A lock on the directory of `path`. The file `path` stays when the lock is released.

    Removing the file while other processes wait for it could let two of them hold the lock on a shared file system.
    A lock that is not held can be pickled and sent to another process.

    A frozen process keeps its kernel lock. With a lease, the holder renews the file's time for as long as it runs; if
    it has not done so within the lease, the next process to ask takes the lock, and `lost` is true when the first one
    wakes.

    Args:
        path: the lock file
        lease: seconds without renewal after which the lock can be taken; None: never
    """

    def __init__(self, path: Path, lease: float | None = None) -> None:
        self.path, self.lease = path, lease
        self._descriptor: int | None = None
        self._owner: int | None = None
        self._renewal: tuple[threading.Thread, threading.Event] | None = None

    @property
    def held(self) -> bool:
        """Whether this process holds the lock."""
        return self._descriptor is not None and self._owner == os.getpid()

    @property
    def lost(self) -> bool:
        """Whether this process acquired the lock, but its file was since removed or replaced by another process."""
        return self._descriptor is not None and self.held and not self._is_at_path(self._descriptor)

    @property
    def taken(self) -> bool:
        """Whether any process holds the lock. Checking creates no file."""
        try:
            with open_plain(self.path):
                descriptor = os.open(self.path, _FLAGS)
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

        Errors: `InUseError` that names the process holding the lock; `StoreError` if the directory cannot be written.
        """
        if self.held:
            raise StoreError(f"{self.path.parent}: already open in this process; close it first")
        deadline = time.monotonic() + wait
        while not self._try():
            if self._take_from_silent():
                continue
            if (left := deadline - time.monotonic()) <= 0:
                owner = self._read_owner()
                raise InUseError(f"{self.path.parent}: in use by {owner}; wait until it ends, or end it")
            time.sleep(min(_PAUSE, left))
        if self.lease is not None:
            ended = threading.Event()
            self._renewal = threading.Thread(target=self._renew, args=(self.lease / 8, ended), daemon=True), ended
            self._renewal[0].start()

    def release(self) -> None:
        """Release the lock; do nothing if this process does not hold it."""
        if self._descriptor is None or not self.held:
            return
        if self._renewal is not None:
            thread, ended = self._renewal
            ended.set()
            thread.join()
            self._renewal = None
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        os.close(self._descriptor)
        self._descriptor = self._owner = None

    def remove(self) -> None:
        """Remove the file of a lock that this process holds, once no process will need it again."""
        with suppress(OSError):  # if it stays, other processes take the lock and find nothing to do
            if self._descriptor is not None and self._is_at_path(self._descriptor):
                self.path.unlink()

    def _renew(self, pause: float, ended: threading.Event) -> None:
        while self._descriptor is not None and not ended.wait(pause):
            with suppress(OSError):
                os.utime(self._descriptor)

    def _take_from_silent(self) -> bool:
        """Remove the file of a holder whose lease has expired; return whether this process did so."""
        if self.lease is None or not self._silent():
            return False
        gate = Lock(self.path.with_name(f".{self.path.name}-taken"))  # else two remove it, and one of them the next
        if not gate._try():
            return False
        try:
            if silent := self._silent():
                self.path.unlink(missing_ok=True)
            return silent
        finally:
            gate.remove()
            gate.release()

    def _silent(self) -> bool:
        """Return whether the holder has not renewed the file within the lease."""
        assert self.lease is not None
        with suppress(FileNotFoundError):
            renewed = self.path.lstat().st_mtime
            near = time.time() - renewed > self.lease / 2  # spares asking the file system's clock
            return near and file_time(self.path.parent) - renewed > self.lease
        return False

    def _try(self) -> bool:
        """Try once to take the lock and return whether this process now holds it.

        Starts again if the file was removed or moved between opening and locking.
        """
        while True:
            try:
                self.path.parent.mkdir(exist_ok=True)
                check_way(self.path, self.path.parent.parent)
            except OSError as error:
                raise StoreError(f"{self.path.parent}: cannot be created: {error.strerror}") from error
            try:
                descriptor = os.open(self.path, _FLAGS | os.O_CREAT, 0o666)
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
                if os.fstat(descriptor).st_nlink > 1:  # a hard-linked copy of a store: two stores share the lock
                    self.path.unlink()
                    os.close(descriptor)
                    continue
                with suppress(OSError):  # full disk: others then see the lock without its holder's name
                    os.ftruncate(descriptor, 0)
                    os.pwrite(descriptor, f"process {os.getpid()} on {os.uname().nodename}".encode(), 0)
                self._descriptor, self._owner = descriptor, os.getpid()
                return True
            os.close(descriptor)

    def _is_at_path(self, descriptor: int) -> bool:
        with suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(descriptor), self.path.lstat())
        return False

    def _read_owner(self) -> str:
        for _ in range(10):  # a holder writes its name just after locking
            with suppress(OSError):
                if name := read_plain(self.path, _LONGEST_NAME).decode(errors="replace"):
                    return "".join(sign if sign.isprintable() else "?" for sign in name)
            time.sleep(0.01)
        return "another process"
