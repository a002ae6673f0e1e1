"""Check the addresses of runs and the names of their files. Files with other names are neither read nor unpacked."""

import re
from collections.abc import Mapping
from typing import Any

from anchorlab.runs.atomic_files import Fingerprint

MANIFEST = "manifest.json"
"""The file that lists all other files of a finished run."""

_CHECKPOINT = re.compile(r"checkpoints/step-([0-9]{8,18})\.safetensors")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def is_address(name: str) -> bool:
    """Return whether a directory's name is an address."""
    return len(name) == 20 and not name.strip("0123456789abcdef")


def is_file_of_run(name: str) -> bool:
    """Return whether a finished run can have a file of this name, manifest included."""
    return name in (MANIFEST, "spec.json", "metrics.parquet") or step_of(name) is not None


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
        if name == MANIFEST or not is_file_of_run(name):
            raise ValueError(f"lists {name[:80]!r}, which is no file of a run")
        match entry:
            case {"size": int(size), "sha256": str(digest)} if size >= 0 and _SHA256.fullmatch(digest):
                found[name] = Fingerprint(size, digest)
            case _:
                raise ValueError(f"lists {name} without its size and its SHA-256")
    return found
