"""Build experiments from plain data, such as options and files: the task's defaults with some fields changed."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, get_args, get_origin

from anchorlab.errors import SpecError
from anchorlab.models import default_model, parse_model
from anchorlab.spec import Spec
from anchorlab.tasks import Task
from anchorlab.training.experiment import Experiment
from anchorlab.training.members import Members
from anchorlab.training.recipe import Recipe, default_recipe


def declared(
    task: Task,
    model: Mapping[str, Any],
    recipe: Mapping[str, Any],
    members: Mapping[str, Any],
    seeds: Sequence[int],
    label: str = "",
) -> Experiment:
    """Return an experiment with the defaults that suit the task, and the given fields changed.

    Args:
        task: the task to learn
        model: fields of the model; a `kind` other than the default starts from that kind's own defaults
        recipe: fields of the recipe; `learning_rate` and `weight_decay` are the optimiser's
        members: fields of `Members` other than the seeds
        seeds: one seed per member
        label: the experiment's name for people

    Errors: `SpecError` that names the field.
    """
    default = default_model(task.shape).model_dump(mode="json")
    base = default if model.get("kind", default["kind"]) == default["kind"] else {}
    if model.keys() & {"width", "heads"}:  # the width of a head follows from them
        base = {name: value for name, value in base.items() if name != "head_width"}
    if "seeds" in members:
        raise SpecError("members.seeds", "is not set here", "write --seeds 0:10, or seeds at the top of a file")
    return Experiment(
        task,
        parse_model(merged(base, model)),
        _recipe(task, recipe),
        Members.parse({**_with_lists(members, Members), "seeds": tuple(seeds)}, "members"),
        label=label,
    )


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return plain data with fields changed at any depth; a part with a changed `kind` is replaced as a whole."""
    result = dict(base)
    for name, value in changes.items():
        old = result.get(name)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            same_kind = value.get("kind", old.get("kind")) == old.get("kind")
            result[name] = merged(old, value) if same_kind else value
        else:
            result[name] = value
    return result


def _recipe(task: Task, fields: Mapping[str, Any]) -> Recipe:
    changes = dict(fields)
    for name in ("learning_rate", "weight_decay"):
        optimiser = changes.get("optimiser", {})
        if name in changes and isinstance(optimiser, Mapping):
            if name in optimiser:
                raise SpecError(f"recipe.{name}", "is given for the optimiser too", "give it once")
            changes["optimiser"] = {**optimiser, name: changes.pop(name)}
    steps = re.fullmatch("[1-9][0-9]{0,17}", str(changes.get("duration", "")))
    default = default_recipe(task, int(steps[0])) if steps else default_recipe(task)
    return Recipe.parse(merged(default.model_dump(mode="json"), _with_lists(changes, Recipe)), "recipe")


def _with_lists(data: Mapping[str, Any], spec: type[Spec]) -> dict[str, Any]:
    """Return the data with single values in lists for the fields that only accept a list."""
    result = dict(data)
    for name, value in data.items():
        annotation = spec.model_fields[name].annotation if name in spec.model_fields else None
        kinds = [get_origin(kind) or kind for kind in (get_args(annotation) or ()) if kind is not type(None)]
        if isinstance(value, str) and (get_origin(annotation) is tuple or kinds == [tuple]):
            result[name] = [value]
        elif isinstance(value, Mapping) and isinstance(annotation, type) and issubclass(annotation, Spec):
            result[name] = _with_lists(value, annotation)
    return result
