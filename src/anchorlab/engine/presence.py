"""Show which workers are alive: each holds a claim on a folder in the store's `workers`, even while it waits."""

import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from anchorlab.errors import StoreError
from anchorlab.plain import is_plain_folder
from anchorlab.runs.claim import LEASE, NAME, Claim, holder

FOLDER = "workers"


class Presence:
    """Show other processes that a worker is alive; a killed worker disappears with its process, or when its lease ends.

    Args:
        root: the folder of the store
        lease: seconds after which a claim that was not renewed is free
    """

    def __init__(self, root: Path, lease: float = LEASE) -> None:
        self.root, self.lease = root, lease
        self._claim: Claim | None = None

    def show(self) -> None:
        """Appear as alive, once the store exists. Errors: `StoreError` if `workers` cannot be written."""
        if not self.root.is_dir() or (self._claim is not None and self._claim.holds):
            return
        self.end()  # of a claim that ran out, as while the machine slept
        folder = self.root / FOLDER / secrets.token_hex(8)
        if folder.parent.is_symlink():
            raise StoreError(f"{folder.parent}: is a link; remove it")
        try:
            folder.mkdir(parents=True)
        except OSError as error:
            raise StoreError(f"{folder}: cannot be written: {error.strerror or error}") from error
        self._claim = Claim(folder, self.lease)
        self._claim.write()
        for other in _folders(self.root):
            if holder(other) is None and (other / NAME).is_file():  # without the file it has only begun
                _remove(other)

    def end(self) -> None:
        """Stop appearing as alive."""
        if self._claim is not None:
            self._claim.release()
            _remove(self._claim.directory)
            self._claim = None


def anyone_at_work(root: Path) -> bool:
    """Return whether a worker of a store is alive, on this machine or on another."""
    return any(holder(folder) is not None for folder in _folders(root))


def _folders(root: Path) -> Iterator[Path]:
    """Yield the folders of the workers that are alive or were killed."""
    if not is_plain_folder(root / FOLDER):
        return
    with suppress(OSError), os.scandir(root / FOLDER) as found:
        yield from (Path(one.path) for one in found if one.is_dir(follow_symlinks=False))


def _remove(folder: Path) -> None:
    with suppress(OSError):
        (folder / NAME).unlink(missing_ok=True)
        folder.rmdir()
