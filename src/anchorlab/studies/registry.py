"""The studies by name; the module of a study is imported when the study is requested."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any

from anchorlab.handed_down import handed_down
from anchorlab.names import STUDIES
from anchorlab.spec import check_known, unknown_name
from anchorlab.studies.study import Study


def study_title(name: str) -> str:
    """Return the title of a study without importing it. Errors: `SpecError` for an unknown name."""
    check_known("study", name, STUDIES, "study")
    return handed_down().study_title(name)


def is_pattern(name: str) -> bool:
    """Return whether a name is a shell pattern, with `*`, `?` or `[`."""
    return any(sign in name for sign in "*?[")


def study_names(patterns: Iterable[str]) -> tuple[str, ...]:
    """Return the studies that match names and patterns such as `anchor/*`, each once, in the order given.

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
    check_known("study", name, STUDIES, "study")
    found: Study[Any] = handed_down().study(name)
    return found
