"""Build tasks and experiments from the arguments of a command line."""

from pathlib import Path
from typing import TYPE_CHECKING

from anchorlab.cli.options.fields import Fields, as_written, nested, written

if TYPE_CHECKING:
    from anchorlab.tasks import Task
    from anchorlab.training import Experiment


def read_experiment(
    task: str, seeds: str, task_fields: Fields, model: Fields, recipe: Fields, members: Fields
) -> "Experiment":
    """Return the experiment of `anchorlab train`: defaults that suit the task, with the given fields changed.

    `task` is a name or the path of a TOML file. A `kind` in `model` starts from that kind's defaults.

    Errors: `SpecError` that names the field as the user wrote it.
    """
    from anchorlab.training.field_paths import SHORT_PATHS
    from anchorlab.training.from_plain_data import declared
    from anchorlab.training.members import read_seeds

    parts = {"task": task_fields, "model": model, "recipe": recipe, "members": members}
    with as_written([*written(parts), "seeds"], SHORT_PATHS):
        return declared(
            read_task(task, task_fields),
            nested(model, "model"),
            nested(recipe, "recipe"),
            nested(members, "members"),
            read_seeds(seeds),
            label=Path(task).stem if task.endswith(".toml") else task,
        )


def read_task(name: str, fields: Fields) -> "Task":
    """Return a registered task by name and arguments, or the task that a TOML file declares.

    Errors: `SpecError` that names the argument, or the file and its field.
    """
    from anchorlab.tasks import task

    with as_written(written({"task": fields}), {}):
        return task(name, **nested(fields, "task"))
