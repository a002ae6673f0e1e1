"""Scan a store: list its runs, find when they changed, and read the data that the index keeps of each."""

import hashlib
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from anchorlab.errors import StoreError
from anchorlab.plain import parse_json, read_data
from anchorlab.runs.atomic_files import Fingerprint, fingerprint, is_intact
from anchorlab.runs.entry import Entry
from anchorlab.runs.names import checked_record, is_address, listed_files
from anchorlab.runs.run import Run

NO_MANIFEST = -1
"""The size in the key of an unfinished run, which has no manifest."""

_MOST = 2**60  # the largest size that is stored; SQLite's integers end at 2**63

Key = tuple[int, int]
"""When the manifest of a run was written, in nanoseconds since 1970, and its size in bytes."""


class Found(NamedTuple):
    """The data that the index keeps of a run; `size` is 0 for an unfinished run, since it still changes."""

    label: str
    members: int
    size: int
    spec: Mapping[str, Any]
    environments: list[dict[str, str | None]]


def present(root: Path) -> dict[str, Key]:
    """Return the key of every run in a store by address; an unfinished run's key has the time of its specification.

    This loop takes most of the time of a listing.
    """
    keys: dict[str, Key] = {}
    stat, folder = os.stat, os.open(root, os.O_RDONLY)  # faster than absolute paths
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not is_address(name := entry.name):
                    continue
                try:
                    status = stat(f"{name}/manifest.json", dir_fd=folder, follow_symlinks=False)
                    keys[name] = status.st_mtime_ns, status.st_size
                except OSError:
                    if entry.is_dir():
                        keys[name] = _changed(root / name / "spec.json"), NO_MANIFEST
    finally:
        os.close(folder)
    return keys


def _changed(path: Path) -> int:
    with suppress(OSError):
        return path.lstat().st_mtime_ns
    return 0


def read(run: Run) -> Found | None:
    """Read the data that the index keeps of a run: None if the run is damaged, empty fields if its folder is empty.

    In a finished run, the specification is checked against the manifest, and the manifest against its own checksum.
    """
    try:
        if run.finished:
            manifest = run.content(run.manifest_path.name)
            files = _files(manifest)
            spec = _intact(run.content(run.spec_path.name), files, run.spec_path.name)
            record = checked_record(parse_json(spec), run.address)
            size = sum(one.size for one in files.values()) + len(manifest)
        elif run.is_empty:
            return Found("", 0, 0, {}, [])
        else:
            record, size = {"label": run.label, "spec": run.spec, "environments": run.environments}, 0
        members = record["spec"].get("members")
        seeds = members.get("seeds", ()) if isinstance(members, Mapping) else members or ()
        return Found(record["label"], len(seeds), min(size, _MOST), record["spec"], record["environments"])
    except (StoreError, OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


def intact_tables(root: Path, addresses: Iterable[str]) -> dict[str, Path]:
    """Return the path of each run's table of metrics by address; damaged tables are left out."""
    found = {}
    for address in addresses:
        run = Run(root / address)
        path = run.metrics_path
        try:
            expected = _files(read_data(run.manifest_path))[path.name]
            if fingerprint(path) != expected:
                raise ValueError(f"{path.name} is damaged")
            found[address] = path
        except (StoreError, OSError, ValueError, LookupError):
            continue
    return found


def entry_of(run: Run) -> Entry:
    """Return the entry of a run, read from its directory."""
    found = read(run)
    if found is None:
        return Entry(run.address, "damaged", "", 0, run.size, 0, begun(run))
    label, members, size, spec, environments = found
    state, size = ("finished", size) if run.finished else ("unfinished", run.size)
    return Entry(run.address, state, label, members, size, 0, begun(run), spec, environments)


def begun(run: Run) -> float:
    """Return when a run was finished, or started if unfinished, in seconds since 1970; 0 if it has been removed."""
    with suppress(OSError):
        return run.modified
    return 0.0


def _files(manifest: bytes) -> Mapping[str, Fingerprint]:
    """Return the fingerprints in a manifest. Errors: `ValueError` if the manifest is damaged."""
    if not is_intact(manifest):
        raise ValueError("the manifest is damaged")
    return listed_files(parse_json(manifest))


def _intact(content: bytes, files: Mapping[str, Fingerprint], name: str) -> bytes:
    """Return the content of a run's file. Errors: `ValueError` if it does not match the manifest."""
    if hashlib.sha256(content).hexdigest() != files[name].sha256:
        raise ValueError(f"{name} is damaged")
    return content
