"""Varied studies and sweeps declared in TOML files."""

import re
from pathlib import Path
from typing import Any

from pydantic import Field

from anchorlab.errors import SpecError
from anchorlab.spec import Spec
from anchorlab.studies.hypotheses import Hypothesis, check_runs, with_hypotheses
from anchorlab.studies.profile_names import SIGN
from anchorlab.studies.study import Study
from anchorlab.studies.training_sweep import sweep_study
from anchorlab.tasks import Task, parse_task, task
from anchorlab.tasks.build import read_toml
from anchorlab.training.field_paths import PARTS, values_by_path
from anchorlab.training.from_plain_data import declared
from anchorlab.training.members import seeds_of


class _File(Spec):
    """What a file of a study or a sweep may hold: tables that change experiments, and hypotheses about the runs."""

    name: str | None = None
    model: dict[str, Any] = Field(default_factory=dict)
    recipe: dict[str, Any] = Field(default_factory=dict)
    members: dict[str, Any] = Field(default_factory=dict)
    hypothesis: tuple[Hypothesis, ...] = ()


class StudyFile(_File):
    """A study and the changes to it.

        study = "anchor/identity"
        seeds = "0:3"

        [model]
        heads = 3

    `study` is a registered name, never a file; without it, the file changes the study that a command names. `name` is
    the name of the findings, by default `own/` and the file's name, followed by the study that a command names. The
    tables hold new values, named as on the command line.
    """

    study: str | None = None
    profile: str | None = None
    seeds: int | str | tuple[int, ...] | None = None
    task: dict[str, Any] = Field(default_factory=dict)

    @property
    def values(self) -> dict[str, Any]:
        """The new values by path."""
        return values_by_path({part: getattr(self, part) for part in PARTS})

    @property
    def chosen_seeds(self) -> tuple[int, ...] | None:
        """The new seeds; None for the study's own. Errors: `SpecError`."""
        return None if self.seeds is None else seeds_of(self.seeds)


def read_study(path: Path, at: str = "study") -> StudyFile:
    """Read a study and its changes from a TOML file; `at` is the option that names the file.

    Errors: `SpecError` that names the file and the field, also for a profile with a pretrained model: the file could
    otherwise have requests sent, with a key, to any server.
    """
    data = read_toml(path, at)
    if "grid" in data:
        raise SpecError(str(path), "has a [grid]: it is a sweep", f"run anchorlab sweep {path}")
    try:
        found = StudyFile.parse(data)
        if SIGN in (found.profile or ""):
            raise SpecError("profile", f"{found.profile!r:.60} names a model", "name it on the command line: --model")
        if "seeds" in found.members:
            raise SpecError("members.seeds", "is not set here", "write seeds at the top of the file")
        _ = found.chosen_seeds
    except SpecError as error:
        raise SpecError(f"{path}: {error.field}", error.problem, error.remedy) from None
    return found if found.name or found.study is None else found.replace(name=own_name("own", path))


class SweepFile(_File):
    """An experiment and the quantities to vary in it.

        task = "anchor/identity"
        seeds = "0:3"

        [recipe]
        duration = 600

        [grid]
        model.layers = [1, 2, 4]
        recipe.learning_rate = [1e-3, 3e-3]

    `task` is a name, a TOML file in the same folder, or a table: a `name` with its arguments, or a declared task. The
    other tables override the task's default experiment. `metric` is the metric in the figures.
    """

    task: str | dict[str, Any]
    metric: str = "accuracy"
    seeds: int | str | tuple[int, ...] = (0, 1, 2)
    grid: dict[str, Any]


def read_sweep(path: Path, seeds: str | None = None) -> tuple[Study[Any], dict[str, list[Any]]]:
    """Read a sweep from a TOML file, whose seeds `seeds` overrides; return its study, and its values by path.

    Errors: `SpecError` that names the file and the field.
    """
    data = read_toml(path, "file")
    if "study" in data:
        raise SpecError(str(path), "varies a study: it is no sweep", f"run anchorlab study {path}")
    chosen = None if seeds is None else seeds_of(seeds)
    try:
        read = SweepFile.parse(data)
        values = values_by_path(read.grid)
        for at, some in values.items():
            if not isinstance(some, list):
                raise SpecError(f"grid.{at}", f"{some!r:.40} is no list of values", "write [1, 2, 4]")
        base = declared(_task(read.task, path), read.model, read.recipe, read.members, chosen or seeds_of(read.seeds))
        name = read.name or own_name("sweep", path)
        study = sweep_study(base.task, values, base.model, base.recipe, base.members, read.metric, name)
        found = with_hypotheses(study, read.hypothesis)
        check_runs(found, "quick", read.hypothesis)
    except SpecError as error:
        field = error.field.replace("vary", "grid", 1) if error.field.partition(".")[0] == "vary" else error.field
        raise SpecError(f"{path}: {field}", error.problem, error.remedy) from None
    return found, values


def _task(given: str | dict[str, Any], path: Path) -> Task:
    """Return the task of a sweep file. Errors: `SpecError`, also for a file outside the sweep's folder."""
    if isinstance(given, str):
        if not given.endswith(".toml"):
            return task(given)
        if Path(given).is_absolute() or ".." in Path(given).parts:
            raise SpecError("task", f"{given!r:.60} is not below the folder of this file", "put it there")
        return task(str(path.parent / given))
    if "family" in given or "operations" in given:
        return parse_task({"family": "anchor", "name": path.stem, **given}, at="task")
    if "name" not in given:
        raise SpecError("task.name", "is missing", "name a task, or declare one as in its own file")
    return task(**given)


def own_name(family: str, path: Path) -> str:
    """Return the name of a study: `family`, and the name of the file that declares it."""
    words = re.sub(r"[^\w-]+", "-", path.stem)
    return f"{family}/{words}"
