"""Build tasks and experiments from the arguments of a command line."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_origin

from anchorlab.cli.fields import Fields, as_written, merged, nested, written
from anchorlab.errors import SpecError

if TYPE_CHECKING:
    from anchorlab.spec import Spec
    from anchorlab.tasks import Task
    from anchorlab.training import Experiment, Recipe


def read_experiment(
    task: str, seeds: str, task_fields: Fields, model: Fields, recipe: Fields, members: Fields
) -> "Experiment":
    """Return the experiment of `anchorlab train`: defaults that suit the task, with the given fields changed.

    Args:
        task: name of a registered task, or path of a TOML file
        seeds: seeds as `read_seeds` reads them
        task_fields: arguments of the task, such as `length=12`
        model: fields of the model; a `kind` other than the default starts from that kind's own defaults
        recipe: fields of the recipe
        members: fields that differ between members, such as `learning-rate=1e-3,1e-4`

    Errors: `SpecError` that names the field as it was written.
    """
    from anchorlab.models import default_model, parse_model
    from anchorlab.training import Experiment, Members
    from anchorlab.training.paths import SHORT_PATHS
    from anchorlab.training.seeds import read_seeds

    parts = {"task": task_fields, "model": model, "recipe": recipe, "members": members}
    with as_written([*written(parts), "seeds"], SHORT_PATHS):
        chosen = read_task(task, task_fields)
        default = default_model(chosen.shape).model_dump(mode="json")
        model_fields = nested(model, "model")
        base = default if model_fields.get("kind", default["kind"]) == default["kind"] else {}
        member_fields = nested(members, "members")
        if "seeds" in member_fields:
            raise SpecError("members.seeds", "has an option of its own", "write --seeds 0:10")
        return Experiment(
            chosen,
            parse_model(merged(base, model_fields)),
            _recipe(chosen, nested(recipe, "recipe")),
            Members.parse({**_with_lists(member_fields, Members), "seeds": read_seeds(seeds)}, "members"),
            label=Path(task).stem if task.endswith(".toml") else task,
        )


def read_task(name: str, fields: Fields) -> "Task":
    """Return a registered task by name and arguments, or the task that a TOML file declares.

    Errors: `SpecError` that names the argument, or the file and its field.
    """
    from anchorlab.tasks import task

    with as_written(written({"task": fields}), {}):
        return task(name, **nested(fields, "task"))


def _recipe(task: "Task", changes: dict[str, Any]) -> "Recipe":
    """Return the task's default recipe with changes; `learning_rate` and `weight_decay` belong to the optimiser."""
    from anchorlab.training import Recipe
    from anchorlab.training.default_recipe import default_recipe

    for name in ("learning_rate", "weight_decay"):
        if name in changes and isinstance(changes.setdefault("optimiser", {}), dict):
            if name in changes["optimiser"]:
                raise SpecError(f"recipe.{name}", "is given for the optimiser too", "give it once")
            changes["optimiser"][name] = changes.pop(name)
    duration = str(changes.get("duration", ""))
    default = (
        default_recipe(task, int(duration)) if re.fullmatch("[1-9][0-9]{0,17}", duration) else default_recipe(task)
    )
    return Recipe.parse(merged(default.model_dump(mode="json"), _with_lists(changes, Recipe)), "recipe")


def _with_lists(data: Mapping[str, Any], spec: "type[Spec]") -> dict[str, Any]:
    """Return the data with single values in lists for the fields that only accept a list."""
    from anchorlab.spec import Spec

    result = dict(data)
    for name, value in data.items():
        annotation = spec.model_fields[name].annotation if name in spec.model_fields else None
        kinds = [get_origin(kind) or kind for kind in (get_args(annotation) or ()) if kind is not type(None)]
        if isinstance(value, str) and (get_origin(annotation) is tuple or kinds == [tuple]):
            result[name] = [value]
        elif isinstance(value, Mapping) and isinstance(annotation, type) and issubclass(annotation, Spec):
            result[name] = _with_lists(value, annotation)
    return result
