"""The studies of the papers and of language models, a folder for each paper.

`family/name` is `STUDY` in `papers/family/name.py`, or in `papers/family/name/name.py` if the study has several files.
Its title is the first line of that module's docstring.
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anchorlab.studies import Study

UNPUBLISHED = ("language/along-training",)
"""Studies whose results the gallery may lack: their models must be downloaded first."""


def study_of(name: str) -> "Study[Any]":
    """Return a study by its name, one of `anchorlab.names.STUDIES`."""
    found: Study[Any] = import_module(f"{__name__}.{'.'.join(_path(name))}").STUDY
    return found


def title_of(name: str) -> str:
    """Return the title of a study without importing it."""
    *folders, file = _path(name)
    place = Path(__file__).parent.joinpath(*folders)
    found = place / f"{file}.py"
    if not found.is_file():
        found = place / file / "__init__.py"
    with found.open(encoding="utf-8") as lines:
        return lines.readline().strip().strip('"').removesuffix(".")


def _path(name: str) -> list[str]:
    family, file = name.replace("-", "_").split("/")
    own = Path(__file__).parent / family / file / f"{file}.py"
    return [family, file, file] if own.is_file() else [family, file]
