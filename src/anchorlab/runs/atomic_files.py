"""Write files atomically and check them when read: fingerprints, digests in file names, JSON with a checksum."""

import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from anchorlab.errors import DamagedChunkError, StoreError
from anchorlab.plain import MOST_BYTES, discard, open_data, parse_json, read_data

DIGEST_LENGTH = 32
"""The number of hexadecimal digits of the content's SHA-256 in a file name: the first half."""

_CHECKSUM = re.compile(rb'\n "checksum": "([0-9a-f]{64})",(?=\n)|,\n "checksum": "([0-9a-f]{64})"(?=\n}\n\Z)')
_LONGEST = 200  # characters of a name; file systems take 255 bytes


class Fingerprint(NamedTuple):
    """The size of a file in bytes and the SHA-256 of its content."""

    size: int
    sha256: str


def write_file(directory: Path, name: str, pieces: Iterable[bytes | memoryview]) -> tuple[Path, Fingerprint]:
    """Write the concatenated `pieces` to `directory/name` atomically: completely, or not at all.

    The content reaches the disk before the file gets its name, so that a power cut leaves no half-written file.

    `{digest}` in `name` is replaced by the first digits of the content's SHA-256.

    Returns: the path and the fingerprint.

    Errors: `StoreError` if the file cannot be written.
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
    except OSError as error:
        raise StoreError(
            f"{directory / name.replace('.{digest}', '')}: cannot be written: {error.strerror or error}"
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    return path, Fingerprint(size, content.hexdigest())


def file_name(text: str) -> str:
    """Return a text as a file or folder name: forbidden characters are percent-encoded.

    The middle of a long name is replaced by a digest of the text.
    """
    name = quote(text, safe="@ ")
    if len(name) > _LONGEST:
        name = f"{name[: _LONGEST // 2]}~{hashlib.sha256(text.encode()).hexdigest()[:16]}~{name[-_LONGEST // 4 :]}"
    return name


def remove_temporaries(directory: Path) -> None:
    """Remove the partial files of a killed writer. The caller must hold the directory's lock."""
    for path in directory.glob(".*.tmp"):
        discard(path)


def matching(folder: Path, pattern: str) -> list[Path]:
    """Return the files of a folder that match a pattern; none if another process renames or removes the folder."""
    with suppress(FileNotFoundError):
        return list(folder.glob(pattern))
    return []


def files_below(folder: Path) -> Iterator[Path]:
    """Yield all files in a folder and its subfolders; those that another process removes meanwhile are skipped."""
    for parent, _, names in os.walk(folder):
        yield from (Path(parent, name) for name in names)


def damaged(path: Path, problem: str, address: str) -> StoreError:
    """Return the error for a file that is not as it was written; its remedy names the run `address`."""
    return StoreError(f"{path}: {problem}; remove the run with `anchorlab runs remove {address}` and train it again")


@contextmanager
def damage_in(path: Path, address: str) -> Iterator[None]:
    """Turn a `ValueError` inside `with` into the error for a damaged file."""
    try:
        yield
    except ValueError as error:
        raise damaged(path, str(error), address) from None


def check_file(path: Path, expected: Fingerprint, address: str, most: int | None = None) -> Path:
    """Return `path` if its content matches the fingerprint, and is no larger than `most` bytes.

    Errors: `StoreError` that names the file if not.
    """
    try:
        with open_data(path, most) as file:
            size = os.fstat(file.fileno()).st_size
            same = size == expected.size  # hashing is slow
            found = Fingerprint(size, hashlib.file_digest(file, "sha256").hexdigest() if same else "")
    except OSError as error:
        raise unreadable(path, error, address) from None
    if found.size != expected.size:
        raise damaged(path, f"damaged: {found.size} bytes where {expected.size} were written", address)
    if found.sha256 != expected.sha256:
        raise damaged(path, "damaged: its content was altered after it was written", address)
    return path


def check_named_file(path: Path) -> Path:
    """Return `path`, a file of a chunk, if its content matches the digest in its name (`stem.<digest>.suffix`).

    Errors: `DamagedChunkError` that names a missing, truncated or altered file.
    """
    try:
        found = fingerprint(path)
    except FileNotFoundError:
        raise DamagedChunkError(path, "missing") from None
    except PermissionError as error:
        raise unreadable(path, error, "") from None
    except OSError as error:
        raise DamagedChunkError(path, f"damaged: cannot be read ({error.strerror})") from None
    if f".{found.sha256[:DIGEST_LENGTH]}." not in path.name:
        raise DamagedChunkError(path, "damaged: truncated or altered after it was written")
    return path


def write_json(directory: Path, name: str, data: Mapping[str, Any]) -> Fingerprint:
    """Write a JSON object together with its checksum, and return the file's fingerprint."""
    checksum = hashlib.sha256(json.dumps(data, sort_keys=True, indent=1).encode()).hexdigest()
    content = json.dumps({**data, "checksum": checksum}, sort_keys=True, indent=1) + "\n"
    return write_file(directory, name, [content.encode()])[1]


def read_json(path: Path, address: str, most: int = MOST_BYTES) -> dict[str, Any]:
    """Return the object that `write_json` wrote, in a file of at most `most` bytes.

    Errors: `StoreError` if the file is missing or a byte has changed.
    """
    try:
        content = read_data(path, most)
    except OSError as error:
        raise unreadable(path, error, address) from None
    if not is_intact(content):
        raise damaged(path, "damaged: truncated or altered after it was written", address)
    try:
        data = parse_json(content)
        del data["checksum"]
    except (ValueError, TypeError, KeyError) as error:
        raise damaged(path, f"damaged: {error}", address) from None
    return dict(data)


def is_intact(content: bytes) -> bool:
    """Return whether the checksum in a file of `write_json` matches the rest of the file, without parsing the JSON."""
    found = _CHECKSUM.search(content)
    if found is None:
        return False
    rest = content[: found.start()] + content[found.end() : -1]
    return content[-1:] == b"\n" and hashlib.sha256(rest).hexdigest().encode() == (found[1] or found[2])


def fingerprint(path: Path) -> Fingerprint:
    """Return the fingerprint of a file."""
    with open_data(path, None) as file:
        digest = hashlib.file_digest(file, "sha256")
        return Fingerprint(file.tell(), digest.hexdigest())


def unreadable(path: Path, error: OSError, address: str) -> StoreError:
    """Return the error for a file that cannot be read: no permission, missing or another system error."""
    if isinstance(error, PermissionError):
        return StoreError(f"{path}: cannot be read: {error.strerror}; allow this user to read it")
    missing = isinstance(error, FileNotFoundError)
    return damaged(path, "missing" if missing else f"cannot be read ({error.strerror})", address)
