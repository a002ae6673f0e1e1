"""Safe access to the files and folders of a store that may come from a stranger.

Such a store can hold links to files elsewhere, pipes without a writer, devices without an end, and JSON nested too
deeply for Python. Every reader of a store uses these functions: they open only regular files, check the folders that
lead to them, and describe any problem in one line.

They check for links before they open a file, so they do not protect a store that changes between the two.
"""

import errno
import json
import os
import re
import shutil
from collections import Counter
from contextlib import suppress
from io import BufferedReader
from pathlib import Path
from stat import S_ISDIR, S_ISLNK, S_ISREG
from typing import Any

from anchorlab.depth import MOST_DEPTH, TOO_DEEP
from anchorlab.errors import StoreError

MOST_BYTES = 2**24
"""The largest file that is read at once, in bytes; a specification, a plan or a record has a few hundred kB at most."""

MOST_BYTES_OF_RESULTS = 2**28
"""The largest file of results that is read at once, in bytes: findings with their views, and tables of metrics."""

_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)  # possessive: never backtracks in a long string
_AS_LISTS = bytes.maketrans(b"{}", b"[]")  # one kind of bracket, so that each pass removes one level
_NO_BRACKETS = bytes(sorted(set(range(256)) - set(b"[]{}")))
_LINK, _OTHER = "is a link, which a store may not hold", "is neither a file nor a folder"


def open_plain(path: Path) -> BufferedReader:
    """Open a regular file for reading. Errors: `OSError`, also for a link, a pipe, a device or a folder."""
    _check_regular(path, path.lstat().st_mode)
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    return os.fdopen(descriptor, "rb")


def read_plain(path: Path, most: int = MOST_BYTES) -> bytes:
    """Return the content of a regular file of at most `most` bytes. Errors: as `open_plain`, or if it is larger."""
    with open_plain(path) as file:
        content = file.read(most + 1) if os.fstat(file.fileno()).st_size <= most else None
    if content is None or len(content) > most:
        raise OSError(errno.EFBIG, f"is larger than {most} bytes", str(path))
    return content


def parse_json(content: bytes | str, *, once: bool = False) -> Any:
    """Parse JSON. Errors: `ValueError` if it is invalid or nested too deeply or, if `once`, names a field twice."""
    text = content.encode() if isinstance(content, str) else content
    said = text.decode()  # UTF-8 only: `json.loads` also accepts UTF-16, which the patterns below would miss
    if text.count(b"[") + text.count(b"{") > MOST_DEPTH:
        brackets = _STRING.sub(b"", text).translate(_AS_LISTS, _NO_BRACKETS)
        for _ in range(MOST_DEPTH):  # each pass removes the innermost pairs
            brackets = brackets.replace(b"[]", b"")
        if brackets:
            raise ValueError(TOO_DEEP)
    return json.loads(said, object_pairs_hook=_named_once if once else None)


def _named_once(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON. Errors: `ValueError` for a name that it has twice, of which JSON keeps the last."""
    found = dict(fields)
    if len(found) < len(fields):
        (name, _), *_ = Counter(name for name, _ in fields).most_common(1)
        raise ValueError(f"names {name[:60]!r} twice")
    return found


def is_plain_folder(path: Path) -> bool:
    """Return whether a path is a folder, and not a link to a folder."""
    try:
        return S_ISDIR(path.lstat().st_mode)
    except (OSError, ValueError):
        return False


def check_way(path: Path, root: Path) -> None:
    """Raise `StoreError` if `path`, or any folder between `root` and it, is a link or other special file.

    Missing parts raise nothing. The folder `root` itself may be a link, since the user named it.
    """
    steps = path.relative_to(root).parts
    for count in range(1, len(steps) + 1):
        part = root.joinpath(*steps[:count])
        try:
            mode = part.lstat().st_mode
        except OSError:  # missing, below a file, or no permission: opening it raises the error
            return
        if not (S_ISDIR(mode) or S_ISREG(mode)):
            raise _refused(part, mode)


def check_tree(folder: Path) -> None:
    """Raise `StoreError` for the first entry at or below `folder` that is neither a file nor a folder."""
    waiting = [folder]
    while waiting:
        path = waiting.pop()
        with suppress(OSError):  # removed by another process, or no permission: reading it raises the error
            mode = path.lstat().st_mode
            if not (S_ISDIR(mode) or S_ISREG(mode)):
                raise _refused(path, mode)
            with os.scandir(path) as found:
                odd = [Path(one.path) for one in found if not one.is_file(follow_symlinks=False)]
            waiting += sorted(odd, reverse=True)


def discard(path: Path) -> None:
    """Remove a file, a link or a whole folder, and ignore errors; the target of a link stays."""
    if is_plain_folder(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def _check_regular(path: Path, mode: int) -> None:
    if S_ISLNK(mode):
        raise OSError(errno.ELOOP, _LINK, str(path))
    if not S_ISREG(mode):
        raise OSError(errno.EINVAL, "is a folder" if S_ISDIR(mode) else _OTHER, str(path))


def _refused(path: Path, mode: int) -> StoreError:
    return StoreError(f"{path}: {_LINK if S_ISLNK(mode) else _OTHER}; delete it")
