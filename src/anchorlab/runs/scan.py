"""Read from the directories of a store what a listing shows: which runs there are, their entries, their tables."""

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from anchorlab.errors import StoreError
from anchorlab.plain import parse_json, read_data
from anchorlab.runs.atomic_files import Fingerprint, fingerprint, is_intact
from anchorlab.runs.entry import Entry
from anchorlab.runs.names import MANIFEST, checked_record, is_address, listed_files
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
    """Return the entry of a run, read from its directory.

    In a finished run, the specification is checked against the manifest, and the manifest against its own checksum.
    """
    state, changed = "finished" if run.finished else "unfinished", 0
    try:
        changed = run.changed
        if state == "unfinished" and run.is_empty:
            return Entry(run.address, state, "", 0, run.size, changed)
        content = run.content(run.spec_path.name)
        if state == "finished":
            manifest = run.content(MANIFEST)
            files = _files(manifest)
            size = min(sum(one.size for one in files.values()) + len(manifest), _LARGEST)
            intact = hashlib.sha256(content).hexdigest() == files[run.spec_path.name].sha256
        else:
            size, intact = run.size, is_intact(content)
        if not intact:
            raise ValueError("the specification is damaged")
        record = checked_record(parse_json(content), run.address)
        members = record["spec"].get("members")
        seeds = members.get("seeds", ()) if isinstance(members, Mapping) else members or ()
        return Entry(
            run.address, state, record["label"], len(seeds), size, changed, record["spec"], record["environments"]
        )
    except _OF_ODD_FILES:
        return Entry(run.address, "damaged", "", 0, run.size, changed)


def intact_tables(root: Path, addresses: Iterable[str]) -> dict[str, Path]:
    """Return the path of each run's table of metrics by address; damaged tables are left out."""
    found = {}
    for address in addresses:
        run = Run(root / address)
        try:
            if fingerprint(run.metrics_path) == _files(read_data(run.manifest_path))[run.metrics_path.name]:
                found[address] = run.metrics_path
        except _OF_ODD_FILES:
            continue
    return found


def _files(manifest: bytes) -> Mapping[str, Fingerprint]:
    """Return the fingerprints in a manifest. Errors: `ValueError` if the manifest is damaged."""
    if not is_intact(manifest):
        raise ValueError("the manifest is damaged")
    return listed_files(parse_json(manifest))
