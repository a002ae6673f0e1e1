"""Open files from other people: as data of bounded size and nesting, never as code.

A store or a file from somebody else may be a link to a file elsewhere, a pipe without a writer, a device without an
end, or JSON nested too deeply for Python. Every reader of such a file opens it by `open_data` or `read_data`, or lets
them check it before a library opens it, and parses JSON by `parse_json`.
"""

import errno
import json
import os
import shutil
from collections import Counter
from contextlib import suppress
from io import BufferedReader
from pathlib import Path
from stat import S_ISDIR, S_ISLNK, S_ISREG
from typing import Any

MOST_BYTES = 2**24
"""The largest file that is read at once, in bytes; a specification, a plan or a record has a few hundred kB at most."""

MOST_BYTES_OF_RESULTS = 2**28
"""The largest file of results that is read at once, in bytes: findings with their views, and tables of metrics."""

MOST_DEPTH = 64
"""The most levels of nested lists and tables; our own files have fewer than ten."""

TOO_DEEP = f"is nested deeper than {MOST_DEPTH} levels"
TOO_LONG = "holds a whole number of more than 64 bits"

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LINK, _OTHER = "is a link, which a store may not hold", "is neither a file nor a folder"


def open_data(path: Path, most: int | None = MOST_BYTES, *, follow: bool = False) -> BufferedReader:
    """Open a regular file for reading.

    Args:
        path: the file
        most: the largest size in bytes; None for any
        follow: whether to open what a link leads to: for a path that the user named, not for one in a store

    Errors: `OSError` that says what is wrong, also for a link, a pipe, a device or a folder.
    """
    path = Path(os.path.realpath(path)) if follow else path
    status = path.lstat()
    if not S_ISREG(status.st_mode):
        kind = _LINK if S_ISLNK(status.st_mode) else "is a folder" if S_ISDIR(status.st_mode) else _OTHER
        raise OSError(errno.EINVAL, kind, str(path))
    if most is not None and status.st_size > most:
        raise OSError(errno.EFBIG, f"is larger than {most} bytes", str(path))
    return os.fdopen(os.open(path, _FLAGS), "rb")


def read_data(path: Path, most: int = MOST_BYTES, *, follow: bool = False) -> bytes:
    """Return the content of a regular file of at most `most` bytes. Arguments and errors: as `open_data`."""
    with open_data(path, most, follow=follow) as file:
        return file.read(most)


def parse_json(content: bytes | str, *, once: bool = False) -> Any:
    """Parse JSON. Errors: `ValueError` if it is invalid or nested too deeply or, if `once`, names a field twice."""
    text = content if isinstance(content, str) else content.decode()  # UTF-8 only
    try:
        data = json.loads(text, object_pairs_hook=_named_once if once else None)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    if text.count("[") + text.count("{") > MOST_DEPTH and is_too_deep(data):
        raise ValueError(TOO_DEEP)
    return data


def _named_once(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object. Errors: `ValueError` for a name that occurs twice; `json` would keep the last."""
    found = dict(fields)
    if len(found) < len(fields):
        (name, _), *_ = Counter(name for name, _ in fields).most_common(1)
        raise ValueError(f"names {name[:60]!r} twice")
    return found


def is_too_deep(data: Any) -> bool:
    """Return whether lists and tables are nested deeper than `MOST_DEPTH`."""
    level = _nested([data])
    for _ in range(MOST_DEPTH):
        level = [inner for one in level for inner in _nested(one)]
    return bool(level)


def has_long_number(data: Any) -> bool:
    """Return whether data that is not too deep holds a whole number outside the signed 64 bits of TOML."""
    if isinstance(data, dict | list):
        return any(map(has_long_number, data.values() if isinstance(data, dict) else data))
    return isinstance(data, int) and not -(2**63) <= data < 2**63


def _nested(one: dict[Any, Any] | list[Any]) -> list[dict[Any, Any] | list[Any]]:
    return [inner for inner in (one.values() if isinstance(one, dict) else one) if isinstance(inner, dict | list)]


def discard(path: Path) -> None:
    """Remove a file, a link or a whole folder, and ignore errors; the target of a link stays."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()
