"""Stores: all runs below one directory, found by their addresses."""

import os
import secrets
import shutil
from pathlib import Path

from anchorlab.errors import StoreError
from anchorlab.runs.cell import Cell
from anchorlab.runs.lock import Lock
from anchorlab.runs.run import Run
from anchorlab.runs.run_directory import RunDirectory, is_address

_REMOVED = ".removed-"


class Store:
    """The runs below `root`: by default $ANCHORLAB_STORE, else `runs` in the working directory.

    Nothing is written outside the root, and nothing at all before a run is opened. Processes may share a store.
    """

    def __init__(self, root: str | Path | None = None) -> None:
        self.root = Path(root if root is not None else os.environ.get("ANCHORLAB_STORE") or "runs").absolute()

    def __repr__(self) -> str:
        return f"Store({str(self.root)!r})"

    def __contains__(self, cell: Cell) -> bool:
        """Whether the cell's run is finished."""
        return Run(self.root / cell.address).finished

    def open(self, cell: Cell, wait: float = 0.0) -> RunDirectory:
        """The cell's run for writing, to be opened by `with`; made then if new.

        A run that another process writes is waited for up to `wait` seconds (`math.inf`: as long as it takes), then
        opening it raises `StoreError`.
        """
        return RunDirectory(self.root / cell.address, cell, wait)

    def find(self, prefix: str) -> Run:
        """The run whose address begins with `prefix`. Errors: `StoreError` when there is none, or more than one."""
        if not prefix:
            raise StoreError(f"{self.root}: an address is empty; write the first digits of one")
        matches = [run for run in self.runs() if run.address.startswith(prefix.lower())]
        if not matches:
            raise StoreError(f"{self.root}: no run begins with {prefix!r}; `anchorlab runs` lists them")
        if len(matches) > 1:
            found = ", ".join(run.address for run in matches[:5]) + (", ..." if len(matches) > 5 else "")
            raise StoreError(f"{self.root}: {prefix!r} is ambiguous ({found}); write more digits")
        return matches[0]

    def runs(self) -> list[Run]:
        """All runs, finished or not, in the order of their addresses; none is read yet."""
        if not self.root.is_dir():
            return []
        return [Run(path) for path in sorted(self.root.iterdir()) if is_address(path.name) and path.is_dir()]

    def remove(self, prefix: str) -> str:
        """Removes a run, damaged or not, and returns its address.

        It is renamed first: whoever looks sees the whole run or none. Errors: as `find`, and `StoreError` when a
        process is writing the run or one of its chunks.
        """
        run = self.find(prefix)
        locks = [Lock(path / "lock") for path in (run.path, *run.state_path.glob("chunk-*")) if path.is_dir()]
        removed = self.root / f"{_REMOVED}{run.address}-{secrets.token_hex(4)}"
        try:
            for lock in locks:
                lock.acquire()
            run.path.rename(removed)
        except OSError as error:
            raise StoreError(f"{run.path}: cannot be removed: {error.strerror or error}") from error
        finally:
            for lock in locks:
                lock.release()
        for path in self.root.glob(f"{_REMOVED}*"):  # Also what a killed remover left.
            shutil.rmtree(path, ignore_errors=True)
        return run.address
