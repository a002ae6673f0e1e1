"""The modules of users that a store's runs need, by name. They are told to people, and never imported by themselves.

A store may come from a stranger, and importing a module runs it: so `plugins.json` is read as names and nothing else.
"""

import json
import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path

from anchorlab.runs.files import write_file
from anchorlab.runs.lock import Lock

NAME = "plugins.json"

_LARGEST = 2**16  # bytes that are read
_PATIENCE = 10.0  # seconds to wait for another study that adds its modules
_MODULE = re.compile(r"[A-Za-z_]\w{0,99}(\.[A-Za-z_]\w{0,99}){0,9}", re.ASCII)


def named_modules(root: Path) -> tuple[str, ...]:
    """Return the modules that a store names; none where there is no such file, or it is not one that we write."""
    try:
        with os.fdopen(os.open(root / NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return ()
            text = file.read(_LARGEST + 1)
        names = json.loads(text)["modules"] if len(text) <= _LARGEST else ()
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return ()
    if not isinstance(names, list):
        return ()
    return tuple(name for name in names if isinstance(name, str) and is_module_name(name))


def note_modules(root: Path, names: Iterable[str]) -> None:
    """Add modules to those that a store names. Errors: `StoreError` if that cannot be written."""
    if set(names) <= set(named_modules(root)):
        return
    root.mkdir(parents=True, exist_ok=True)
    lock = Lock(root / f"{NAME}.lock")
    lock.acquire(_PATIENCE)
    try:  # another study may have added its own meanwhile
        text = json.dumps({"modules": sorted({*named_modules(root), *names})}, indent=1)
        write_file(root, NAME, [text.encode()])
    finally:
        lock.remove()
        lock.release()


def is_module_name(text: str) -> bool:
    """Return whether a text is a module's name, such as `my_module` or `my_package.tasks`."""
    return _MODULE.fullmatch(text) is not None
