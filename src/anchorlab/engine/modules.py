"""Modules of users: they register the tasks and models that runs elsewhere name."""

import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

from anchorlab.errors import SpecError


def import_modules(names: Iterable[str], folder: str | Path = ".") -> None:
    """Import modules from a folder or from anywhere that Python looks. Errors: `SpecError` for one that fails."""
    sys.path.insert(0, str(Path(folder).absolute()))
    for name in names:
        try:
            import_module(name)
        except ImportError as error:
            raise SpecError("import", f"{name} cannot be imported ({error})", "run where it lies") from None
