"""A varied study as a TOML file declares it."""

import re
from pathlib import Path
from typing import Any

from pydantic import Field

from anchorlab.errors import SpecError
from anchorlab.spec import Spec
from anchorlab.studies.hypotheses import Hypothesis
from anchorlab.tasks.build import read_toml
from anchorlab.training.field_paths import PARTS, flat
from anchorlab.training.members import seeds_of


class StudyFile(Spec):
    """A study and what is changed in it.

        study = "anchor/identity"
        seeds = "0:3"

        [model]
        heads = 3

    `study` is a name, or a Python file in the same folder; `name` is the name of the findings, `own/` and the file's by
    default. The tables hold new values as the options of a command line name them.
    """

    study: str
    name: str | None = None
    profile: str | None = None
    seeds: int | str | tuple[int, ...] | None = None
    task: dict[str, Any] = Field(default_factory=dict)
    model: dict[str, Any] = Field(default_factory=dict)
    recipe: dict[str, Any] = Field(default_factory=dict)
    members: dict[str, Any] = Field(default_factory=dict)
    hypothesis: tuple[Hypothesis, ...] = ()

    @property
    def values(self) -> dict[str, Any]:
        """The new values by path."""
        return dict(flat({part: getattr(self, part) for part in PARTS}))

    @property
    def chosen_seeds(self) -> tuple[int, ...] | None:
        """The new seeds; None for the study's own. Errors: `SpecError`."""
        return None if self.seeds is None else seeds_of(self.seeds)


def read_study(path: Path) -> StudyFile:
    """Return what a TOML file changes in a study. Errors: `SpecError` that names the file and the field."""
    data = read_toml(path, "study")
    if "grid" in data:
        raise SpecError(str(path), "has a [grid]: it is a sweep", f"run anchorlab sweep {path}")
    if "study" not in data:
        raise SpecError(f"{path}: study", "is missing", "name the study that is varied; a file of a task is for train")
    try:
        found = StudyFile.parse(data)
        _ = found.chosen_seeds
    except SpecError as error:
        raise SpecError(f"{path}: {error.field}", error.problem, error.remedy) from None
    return found if found.name else found.replace(name=own_name("own", path))


def own_name(family: str, path: Path) -> str:
    """Return the name of a study after the file that declares it."""
    words = re.sub(r"[^\w-]+", "-", path.stem)
    return f"{family}/{words}"
