"""Show which workers are alive: each holds a lease on a folder of its own in the store's `workers`, even when idle."""

import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from anchorlab.errors import StoreError
from anchorlab.plain import is_plain_folder
from anchorlab.runs.lease import LEASE, NAME, Lease, holder

FOLDER = "workers"


class Presence:
    """Shows other processes that a worker is alive, until its process ends or its lease expires.

    Args:
        root: the folder of the store
        lease: seconds without renewal after which a lease expires
    """

    def __init__(self, root: Path, lease: float = LEASE) -> None:
        self.root, self.lease = root, lease
        self._lease: Lease | None = None

    def show(self) -> None:
        """Lease a folder in `workers` if the store exists and no lease holds; remove the folders of dead workers.

        Errors: `StoreError` if `workers` is a link or cannot be written.
        """
        if not self.root.is_dir() or (self._lease is not None and self._lease.holds):
            return
        self.end()  # ends a lease that has expired, such as while the machine slept
        folder = self.root / FOLDER / secrets.token_hex(8)
        if folder.parent.is_symlink():
            raise StoreError(f"{folder.parent}: is a link; remove it")
        try:
            folder.mkdir(parents=True)
        except OSError as error:
            raise StoreError(f"{folder}: cannot be written: {error.strerror or error}") from error
        self._lease = Lease(folder, self.lease)
        self._lease.write()
        for other in _folders(self.root):
            if holder(other) is None and (other / NAME).is_file():  # without the file, it is just starting
                _remove(other)

    def end(self) -> None:
        """Release the lease and remove its folder."""
        if self._lease is not None:
            self._lease.release()
            _remove(self._lease.directory)
            self._lease = None


def anyone_at_work(root: Path) -> bool:
    """Return whether any worker of a store is alive, on this machine or another."""
    return any(holder(folder) is not None for folder in _folders(root))


def _folders(root: Path) -> Iterator[Path]:
    """Yield the folders of workers, alive or killed."""
    if not is_plain_folder(root / FOLDER):
        return
    with suppress(OSError), os.scandir(root / FOLDER) as found:
        yield from (Path(one.path) for one in found if one.is_dir(follow_symlinks=False))


def _remove(folder: Path) -> None:
    with suppress(OSError):
        (folder / NAME).unlink(missing_ok=True)
        folder.rmdir()
