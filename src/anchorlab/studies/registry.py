"""The studies by name, each in a module of its own that is imported when it is asked for.

`family/name` is `STUDY` in `studies/family/name.py`; its title is the first line of that file's docstring.
"""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from importlib import import_module
from importlib.resources import files
from typing import Any

from anchorlab.names import STUDIES
from anchorlab.spec import unknown_name
from anchorlab.studies.study import Study

UNPUBLISHED = ("language/along-training",)
"""Studies whose results the gallery may lack: their models must be downloaded first."""


def study_title(name: str) -> str:
    """Return the title of a study without importing it. Errors: `SpecError` for an unknown name."""
    _check(name)
    path = files("anchorlab.studies").joinpath(*_module(name).split("."))
    with path.with_name(f"{path.name}.py").open(encoding="utf-8") as file:  # type: ignore[attr-defined]
        return str(file.readline()).strip().strip('"').removesuffix(".")


def is_pattern(name: str) -> bool:
    """Return whether a name holds a sign of a shell pattern: `*`, `?` or `[`."""
    return any(sign in name for sign in "*?[")


def study_names(patterns: Iterable[str]) -> tuple[str, ...]:
    """Return the studies that names and patterns such as `anchor/*` match, each once, in the order given.

    Errors: `SpecError` for an unknown name, with the nearest known one, and for a pattern that matches no study.
    """
    found: dict[str, None] = {}
    for pattern in patterns:
        fitting = [name for name in STUDIES if fnmatchcase(name, pattern)] if is_pattern(pattern) else [pattern]
        if not fitting or fitting[0] not in STUDIES:
            raise unknown_name("study", pattern, STUDIES, "study")
        found |= dict.fromkeys(fitting)
    return tuple(found)


def study(name: str) -> Study[Any]:
    """Return a study by name. Errors: `SpecError` with the nearest known name for an unknown one."""
    _check(name)
    found: Study[Any] = import_module(f"anchorlab.studies.{_module(name)}").STUDY
    return found


def _check(name: str) -> None:
    if name not in STUDIES:
        raise unknown_name("study", name, STUDIES, "study")


def _module(name: str) -> str:
    return name.replace("/", ".").replace("-", "_")
