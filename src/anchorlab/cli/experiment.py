"""Experiments from the words of a command line."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_origin

from anchorlab.cli.fields import Fields, as_written, merged, nested, written
from anchorlab.errors import SpecError

if TYPE_CHECKING:
    from anchorlab.spec import Spec
    from anchorlab.tasks import Task
    from anchorlab.training import Experiment

_MOST_SEEDS = 100_000
_SHORT = {
    "seeds": "members.seeds",
    "recipe.learning_rate": "recipe.optimiser.learning_rate",
    "recipe.weight_decay": "recipe.optimiser.weight_decay",
}


def read_experiment(
    task: str, seeds: str, task_fields: Fields, model: Fields, recipe: Fields, members: Fields
) -> "Experiment":
    """What `anchorlab train` is asked for: defaults that suit the task, with the fields given changed.

    Errors: `SpecError` that names the field as it was written.
    """
    from anchorlab.models import default_model, parse_model
    from anchorlab.training import Experiment, Members

    parts = {"task": task_fields, "model": model, "recipe": recipe, "members": members}
    with as_written([*written(parts), "seeds"], _SHORT):
        chosen = read_task(task, task_fields)
        base = default_model(chosen.shape).model_dump(mode="json")
        wanted = nested(model, "model")
        kept = base if wanted.get("kind", base["kind"]) == base["kind"] else {}
        given = nested(members, "members")
        if "seeds" in given:
            raise SpecError("members.seeds", "has an option of its own", "write --seeds 0:10")
        return Experiment(
            chosen,
            parse_model(merged(kept, wanted)),
            _recipe(chosen, nested(recipe, "recipe")),
            Members.parse({**_lists(given, Members), "seeds": read_seeds(seeds)}, "members"),
            label=Path(task).stem if task.endswith(".toml") else task,
        )


def read_task(name: str, fields: Fields) -> "Task":
    """A registered task by name with its arguments, or one declared in a TOML file.

    Errors: `SpecError` that names the argument, or the file and the field in it.
    """
    from anchorlab.tasks import task

    with as_written(written({"task": fields}), {}):
        return task(name, **nested(fields, "task"))


def read_seeds(text: str) -> tuple[int, ...]:
    """`0:10` as the seeds 0 to 9, `0,3,5` as these. Errors: `SpecError` that names `seeds`."""
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,18})\s*(?::\s*([0-9]{1,18})\s*)?", part)
        if match is None:
            raise SpecError("seeds", f"{text!r:.60} is not a list of seeds", "write 0:10 for ten seeds, or 0,3,5")
        first = int(match[1])
        span = range(first, int(match[2]) if match[2] else first + 1)
        if not span:
            raise SpecError("seeds", f"{part.strip()} holds no seed", "write 0:10 for ten seeds")
        if len(seeds) + len(span) > _MOST_SEEDS:
            raise SpecError("seeds", f"{text!r:.60} are more than {_MOST_SEEDS}", "train fewer at once")
        seeds += span
    return tuple(seeds)


def _recipe(task: "Task", changes: dict[str, Any]) -> Any:
    """The task's default recipe with changes; a learning rate or weight decay is the optimiser's."""
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
    return Recipe.parse(merged(default.model_dump(mode="json"), _lists(changes, Recipe)), "recipe")


def _lists(data: Mapping[str, Any], spec: "type[Spec]") -> dict[str, Any]:
    """The data with a single value as a list wherever the spec takes nothing but a list."""
    from anchorlab.spec import Spec

    result = dict(data)
    for name, value in data.items():
        annotation = spec.model_fields[name].annotation if name in spec.model_fields else None
        kinds = [get_origin(kind) or kind for kind in (get_args(annotation) or ()) if kind is not type(None)]
        if isinstance(value, str) and (get_origin(annotation) is tuple or kinds == [tuple]):
            result[name] = [value]
        elif isinstance(value, Mapping) and isinstance(annotation, type) and issubclass(annotation, Spec):
            result[name] = _lists(value, annotation)
    return result
