"""The names of the user modules that a store's runs need. They are shown, and never imported without being asked for.

Importing a module runs it, and a store may be untrusted, so `plugins.json` is read as a list of names only.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path

from anchorlab.plain import parse_json, read_data
from anchorlab.runs.atomic_files import write_file

NAME = "plugins.json"

_LARGEST = 2**16  # bytes that are read
_MODULE = re.compile(r"[A-Za-z_]\w{0,99}(\.[A-Za-z_]\w{0,99}){0,9}", re.ASCII)


def named_modules(root: Path) -> tuple[str, ...]:
    """Return the modules that a store names; none if the file is missing or malformed."""
    try:
        names = parse_json(read_data(root / NAME, _LARGEST))["modules"]
    except (OSError, ValueError, LookupError, TypeError):
        return ()
    if not isinstance(names, list):
        return ()
    return tuple(name for name in names if isinstance(name, str) and is_module_name(name))


def note_modules(root: Path, names: Iterable[str]) -> None:
    """Add modules to the names in a store whose lock this process holds. Errors: `StoreError` if that is impossible."""
    if set(names) <= set(named_modules(root)):
        return
    names = sorted({*named_modules(root), *names})
    write_file(root, NAME, [json.dumps({"modules": names}, indent=1).encode()])


def is_module_name(text: str) -> bool:
    """Return whether a text is a module name, such as `my_module` or `my_package.tasks`."""
    return _MODULE.fullmatch(text) is not None
