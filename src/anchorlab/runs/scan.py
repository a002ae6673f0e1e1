"""Read from the directories of a store what a listing shows: which runs there are, their entries, their tables."""

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from anchorlab.errors import StoreError
from anchorlab.runs.entry import Entry
from anchorlab.runs.names import MANIFEST, is_address
from anchorlab.runs.run import Run

_LARGEST = 2**60  # bytes of a run; SQLite's integers end at 2**63
_OF_ODD_FILES = (StoreError, OSError, ValueError, LookupError, TypeError, AttributeError)

Key = tuple[int, int]
"""When the manifest of a run was written, in nanoseconds since 1970, and its size in bytes."""


def present(root: Path) -> dict[str, Key | None]:
    """Return the key of every run in a store by address; None for a run without a manifest, which is unfinished.

    This loop takes most of the time of a listing.
    """
    keys: dict[str, Key | None] = {}
    stat, folder = os.stat, os.open(root, os.O_RDONLY)  # faster than absolute paths
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not is_address(name := entry.name):
                    continue
                try:
                    status = stat(f"{name}/{MANIFEST}", dir_fd=folder, follow_symlinks=False)
                    keys[name] = status.st_mtime_ns, status.st_size
                except OSError:
                    if entry.is_dir():
                        keys[name] = None
    finally:
        os.close(folder)
    return keys


def entry_of(run: Run) -> Entry:
    """Return the entry of a run, read from its directory and checked, except for metrics and tensors."""
    state, changed = "finished" if run.finished else "unfinished", 0
    try:
        changed = run.changed
        if state == "unfinished" and run.is_empty:
            return Entry(run.address, state, "", 0, run.size, changed)
        record = run.record
        if state == "unfinished":
            size = run.size
        else:
            size = min(sum(one.size for one in run.files.values()) + run.manifest_path.lstat().st_size, _LARGEST)
        members = record["spec"].get("members")
        seeds = members.get("seeds", ()) if isinstance(members, Mapping) else members or ()
        environments = record["environments"]
        return Entry(run.address, state, record["label"], len(seeds), size, changed, record["spec"], environments)
    except _OF_ODD_FILES:
        return Entry(run.address, "damaged", "", 0, run.size, changed)


def intact_tables(root: Path, addresses: Iterable[str]) -> dict[str, Path]:
    """Return the path of each run's table of metrics by address; damaged tables are left out."""
    found = {}
    for address in addresses:
        with suppress(*_OF_ODD_FILES):
            found[address] = (run := Run(root / address)).checked(run.metrics_path)
    return found
