"""Files that are either old or new and never half: atomic writes, fingerprints, and JSON that notices damage."""

import hashlib
import json
import os
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from anchorlab.errors import StoreError

DIGEST_LENGTH = 32
"""Hexadecimal digits of a file's SHA-256 that stand in its name, where a name holds one."""


class Fingerprint(NamedTuple):
    """What tells a file from every other: its size in bytes and the SHA-256 of its content."""

    size: int
    sha256: str


def write_file(directory: Path, name: str, pieces: Iterable[bytes | memoryview]) -> tuple[Path, Fingerprint]:
    """Writes `pieces` one after the other to `directory/name`, which afterwards is wholly there or as it was before.

    `{digest}` in `name` becomes the first digits of the content's SHA-256. Errors: `StoreError` when it cannot be done.
    """
    temporary = directory / f".{secrets.token_hex(8)}.tmp"
    size, content = 0, hashlib.sha256()
    try:
        with temporary.open("xb") as file:
            for piece in pieces:
                size += file.write(piece)
                content.update(piece)
            file.flush()
            os.fsync(file.fileno())
        path = directory / name.replace("{digest}", content.hexdigest()[:DIGEST_LENGTH])
        temporary.replace(path)
        sync_directory(directory)
    except OSError as error:
        raise StoreError(f"{directory / name}: cannot be written: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    return path, Fingerprint(size, content.hexdigest())


def sync_directory(directory: Path) -> None:
    """Makes the names in `directory` durable, as `fsync` does for a file's content."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_temporaries(directory: Path) -> None:
    """Removes what a killed writer left half written; only for who holds the directory's lock."""
    for path in directory.glob(".*.tmp"):
        path.unlink(missing_ok=True)


def damaged(path: Path, problem: str, address: str) -> StoreError:
    """The error for a file that is not what was written."""
    return StoreError(f"{path}: {problem}; remove the run with `anchorlab runs remove {address}` and train it again")


def check_file(path: Path, expected: Fingerprint, address: str) -> Path:
    """`path` itself when its content is the expected one. Errors: `StoreError` that names it when it is not."""
    found = _fingerprint(path, address)
    if found.size != expected.size:
        raise damaged(path, f"damaged: {found.size} bytes where {expected.size} were written", address)
    if found.sha256 != expected.sha256:
        raise damaged(path, "damaged: its content was altered after it was written", address)
    return path


def check_named_file(path: Path, address: str) -> Path:
    """`path` itself when its content has the digest in its name (`stem.<digest>.suffix`).

    Errors: `StoreError` that names it when missing, truncated or altered.
    """
    found = _fingerprint(path, address)
    if found.sha256[:DIGEST_LENGTH] != path.name.split(".")[-2]:
        raise damaged(path, "damaged: truncated or altered after it was written", address)
    return path


def write_json(directory: Path, name: str, data: Mapping[str, Any]) -> Fingerprint:
    """Writes a JSON object together with a checksum of itself."""
    return write_file(directory, name, [_sealed(data)])[1]


def read_json(path: Path, address: str) -> dict[str, Any]:
    """What `write_json` wrote. Errors: `StoreError` that names the file when missing, or when any byte has changed."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error, address) from None
    try:
        data = json.loads(content)
        del data["checksum"]
        intact = _sealed(data) == content
    except (ValueError, KeyError, TypeError, RecursionError):
        intact = False
    if not intact:
        raise damaged(path, "damaged: truncated or altered after it was written", address)
    return dict(data)


def _sealed(data: Mapping[str, Any]) -> bytes:
    content = json.dumps(data, sort_keys=True, indent=1)
    checksum = hashlib.sha256(content.encode()).hexdigest()
    return (json.dumps({**data, "checksum": checksum}, sort_keys=True, indent=1) + "\n").encode()


def _fingerprint(path: Path, address: str) -> Fingerprint:
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256")
            return Fingerprint(file.tell(), digest.hexdigest())
    except OSError as error:
        raise _unreadable(path, error, address) from None


def _unreadable(path: Path, error: OSError, address: str) -> StoreError:
    missing = isinstance(error, FileNotFoundError)
    return damaged(path, "missing" if missing else f"cannot be read ({error.strerror})", address)
