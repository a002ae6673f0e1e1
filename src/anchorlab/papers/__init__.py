"""The studies of the papers and of language models, a folder for each paper.

The study `family/name` is `STUDY` in `papers/family/name.py`, or in `papers/family/name/name.py` if it has several
files. Its title is the first line of that module's docstring. `truth/methods` has no paper; it is in `anchorlab.truth`.
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anchorlab.studies import Study


def study_of(name: str) -> "Study[Any]":
    """Return a study by its name, one of `anchorlab.names.STUDIES`."""
    found: Study[Any] = import_module(".".join(("anchorlab", *_path(name)))).STUDY
    return found


def title_of(name: str) -> str:
    """Return the title of a study without importing it."""
    with Path(__file__).parents[1].joinpath(*_path(name)).with_suffix(".py").open(encoding="utf-8") as lines:
        return lines.readline().strip().strip('"').removesuffix(".")


def _path(name: str) -> list[str]:
    """Return the path of a study's module within `anchorlab`, part by part."""
    family, file = name.replace("-", "_").split("/")
    if family == "truth":
        return [family, file]
    own = Path(__file__).parent / family / file / f"{file}.py"
    return ["papers", family, file, file] if own.is_file() else ["papers", family, file]
