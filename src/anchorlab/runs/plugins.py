"""The names of the users' own modules that a store's runs need. They are shown to people and never imported unasked.

A store may come from a stranger, and importing a module runs it, so `plugins.json` is read as names and nothing else.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path

from anchorlab.plain import parse_json, read_plain
from anchorlab.runs.files import write_file
from anchorlab.runs.lock import Lock

NAME = "plugins.json"

_LARGEST = 2**16  # bytes that are read
_PATIENCE = 10.0  # seconds to wait for another study that adds its modules
_MODULE = re.compile(r"[A-Za-z_]\w{0,99}(\.[A-Za-z_]\w{0,99}){0,9}", re.ASCII)


def named_modules(root: Path) -> tuple[str, ...]:
    """Return the modules that a store names; none if the file is missing, or has another format than ours."""
    try:
        names = parse_json(read_plain(root / NAME, _LARGEST))["modules"]
    except (OSError, ValueError, LookupError, TypeError):
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
