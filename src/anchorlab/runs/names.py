"""The names of the files of runs, their manifests and their records."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anchorlab.runs.atomic_files import Fingerprint, write_json

MANIFEST = "manifest.json"
"""The file that lists all other files of a finished run."""

READINGS = "readings.safetensors"
"""The file that a run without weights keeps in place of them: what a study's claims read from the weights."""

_CHECKPOINT = re.compile(r"checkpoints/step-([0-9]{8,18})\.safetensors")
_FILES = ("spec.json", "metrics.parquet", READINGS)  # of a finished run, besides checkpoints and the manifest
_SHA256 = re.compile(r"[0-9a-f]{64}")


def is_address(name: str) -> bool:
    """Return whether a directory's name is an address."""
    return len(name) == 20 and not name.strip("0123456789abcdef")


def checkpoint_name(step: int) -> str:
    """Return the path of a checkpoint within its run."""
    return f"checkpoints/step-{step:08d}.safetensors"


def step_of(name: str) -> int | None:
    """Return the step of a checkpoint by its path within its run; None for any other file."""
    match = _CHECKPOINT.fullmatch(name)
    return None if match is None else int(match[1])


def listed_files(manifest: Mapping[str, Any]) -> dict[str, Fingerprint]:
    """Return the fingerprint of every file that a manifest lists.

    Errors: `ValueError` for a file name that no run has, and for an invalid fingerprint.
    """
    files = manifest.get("files")
    if not isinstance(files, dict):
        raise ValueError("lists no files")
    found = {}
    for name, entry in files.items():
        if name not in _FILES and step_of(name) is None:
            raise ValueError(f"lists {name[:80]!r}, which is no file of a run")
        match entry:
            case {"size": int(size), "sha256": str(digest)} if size >= 0 and _SHA256.fullmatch(digest):
                found[name] = Fingerprint(size, digest)
            case _:
                raise ValueError(f"lists {name} without its size and its SHA-256")
    return found


def write_manifest(folder: Path, files: Mapping[str, Fingerprint]) -> None:
    """Write the manifest of a run, which finishes it."""
    write_json(folder, MANIFEST, {"files": {name: found._asdict() for name, found in files.items()}})


def checked_record(data: Any, address: str) -> dict[str, Any]:
    """Return `data`, the content of a `spec.json`, as the record of the run at an address.

    Errors: `ValueError` that says what is wrong with the record.
    """
    match data:
        case {"address": str(own), "spec": dict(), "label": str(), "environments": list(environments)}:
            pass
        case _:
            raise ValueError("written by another version of anchorlab")
    if own != address:
        raise ValueError(f"belongs to the run {own[:40]}")
    fields = [value for one in environments if isinstance(one, dict) for value in one.values()]
    made_by = data.get("made_by", [])
    records = [*environments, *made_by] if isinstance(made_by, list) else [made_by]
    if not all(isinstance(one, dict) for one in records) or not all(isinstance(one, str | None) for one in fields):
        raise ValueError("does not say where it was computed")
    try:
        data["label"].encode()
        json.dumps([data["spec"], environments], allow_nan=False)
    except ValueError:
        raise ValueError("holds a number or a sign that JSON does not have") from None
    return dict(data)
