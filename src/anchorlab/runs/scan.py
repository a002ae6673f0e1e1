"""What the run directories say: which runs there are, when they changed, and what an index keeps of each."""

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from anchorlab.errors import StoreError
from anchorlab.runs.entry import Entry
from anchorlab.runs.run import Run
from anchorlab.runs.run_directory import is_address

Key = tuple[int, int]
"""When a run's manifest changed, in nanoseconds, and its size; of an unfinished run, when its specification did."""

NO_MANIFEST = -1
"""In place of the size of the manifest that an unfinished run does not have."""


class Found(NamedTuple):
    """What an index keeps of a run: `size` is 0 for an unfinished run, which grows."""

    label: str
    members: int
    size: int
    spec: Mapping[str, Any]
    environments: list[dict[str, str | None]]


def present(root: Path) -> dict[str, Key]:
    """Return the key of every run in a store by its address. This loop takes most of the time of a list."""
    keys: dict[str, Key] = {}
    stat, folder = os.stat, os.open(root, os.O_RDONLY)  # paths below an open folder are found faster
    try:
        with os.scandir(root) as found:
            for one in found:
                name = one.name
                if is_address(name) and one.is_dir():
                    try:
                        status = stat(f"{name}/manifest.json", dir_fd=folder)
                        keys[name] = status.st_mtime_ns, status.st_size
                    except OSError:
                        keys[name] = _changed(root / name / "spec.json"), NO_MANIFEST
    finally:
        os.close(folder)
    return keys


def _changed(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_mtime_ns
    return 0


def read(run: Run) -> Found | None:
    """Return what an index keeps of a run; None for a damaged one.

    The specification of a finished run is compared with the manifest, but neither of them with its own checksum, which
    would take five times as long.
    """
    try:
        if run.finished:
            files = _manifest(run)
            record = json.loads(_intact(run.spec_path, files))
            if record["address"] != run.address:
                return None
            size = sum(one["size"] for one in files.values()) + run.manifest_path.stat().st_size
        else:
            record, size = {"label": run.label, "spec": run.spec, "environments": run.environments}, 0
        members = record["spec"].get("members")
        seeds = members.get("seeds", ()) if isinstance(members, Mapping) else members or ()
        return Found(record["label"], len(seeds), size, record["spec"], record["environments"])
    except (StoreError, OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


def intact_metrics(run: Run) -> Path | None:
    """Return the table of metrics of a finished run; None if it is damaged."""
    with suppress(OSError, ValueError, LookupError, TypeError):
        _intact(run.metrics_path, _manifest(run))
        return run.metrics_path
    return None


def entry_of(run: Run) -> Entry:
    """Return the entry of a run, read from its directory."""
    found = read(run)
    if found is None:
        return Entry(run.address, "damaged", "", 0, run.size, 0, begun(run))
    label, members, size, spec, environments = found
    state, size = ("finished", size) if run.finished else ("unfinished", run.size)
    return Entry(run.address, state, label, members, size, 0, begun(run), spec, environments)


def begun(run: Run) -> float:
    """Return when a run was begun, or finished; 0 for one that has been removed since."""
    with suppress(OSError):
        return run.modified
    return 0.0


def _manifest(run: Run) -> Mapping[str, Any]:
    """Return what the manifest of a finished run says of each file."""
    found: Mapping[str, Any] = json.loads(run.manifest_path.read_bytes())["files"]
    return found


def _intact(path: Path, files: Mapping[str, Any]) -> bytes:
    """Return the content of a file of a run. Errors: `ValueError` if it is not what the manifest says."""
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != files[path.name]["sha256"]:
        raise ValueError(f"{path} is damaged")
    return content
