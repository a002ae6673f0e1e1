"""Read and set fields of an experiment by path, such as `model.layers` or `recipe.optimiser.learning_rate`."""

from collections.abc import Mapping
from copy import deepcopy
from functools import reduce
from typing import Any, cast

from anchorlab.errors import SpecError
from anchorlab.runs import flat
from anchorlab.spec import check_known, unknown_name
from anchorlab.training.experiment import Experiment

Value = str | int | float | bool | None | tuple["Value", ...] | list["Value"]

PARTS = ("task", "model", "recipe", "members")
"""The parts of an experiment; every path begins with one of them."""

SHORT_PATHS = {
    "seeds": "members.seeds",
    "recipe.learning_rate": "recipe.optimiser.learning_rate",
    "recipe.weight_decay": "recipe.optimiser.weight_decay",
}
"""Short paths that users may write, with the full paths."""

_OVERRIDDEN = {
    "recipe.optimiser.learning_rate": "learning_rate",
    "recipe.optimiser.weight_decay": "weight_decay",
    "recipe.clip": "clip",
    "recipe.data.size": "data_size",
}
"""The fields of `Members` that override the recipe, by the path of what they override."""


def quantity(path: str) -> str:
    """Return a field's readable name, such as `learning rate` for `recipe.optimiser.learning_rate`."""
    parts = path.split(".")
    return parts[-2 if parts[-1] == "all" and len(parts) > 1 else -1].replace("_", " ")


def values_by_path(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values in nested tables by path; short paths are expanded."""
    return {SHORT_PATHS.get(path, path): value for path, value in flat(data) if not isinstance(value, Mapping)}


def value_at(experiment: Experiment, path: str) -> Any:
    """Return the value of a field as plain data. Errors: `SpecError` for a path that names no field."""
    place, name = _place(experiment.to_json(), path)
    if name in place:
        return place[name]
    owner = reduce(lambda one, part: getattr(one, part, None), path.split(".")[:-1], cast("Any", experiment))
    if name in getattr(owner, "later", ()):  # left out of the JSON, since it has its default
        return getattr(owner, name)
    raise unknown_name(path, name, place, "field")


def with_values(experiment: Experiment, values: Mapping[str, Value], label: str, at: str = "") -> Experiment:
    """Return the experiment with other values at these paths; a value below `members` is given to every member.

    Errors: `SpecError` at `at` + path for a path that leads nowhere, and for a field that members override;
    `SpecError` for an unknown field or a value that the field refuses.
    """
    data = deepcopy(experiment.to_json())
    for path, value in values.items():
        place, name = _place(data, path, at)
        if path in _OVERRIDDEN and data["members"].get(own := _OVERRIDDEN[path]) is not None:
            raise SpecError(at + path, f"has no effect, as members.{own} overrides it", f"change members.{own}")
        place[name] = [value] * len(experiment.members) if path.startswith("members.") else value
    try:
        return Experiment.from_json(data, label)
    except SpecError as error:
        if error.field in values:
            raise SpecError(at + error.field, error.problem, error.remedy) from None
        raise


def _place(data: dict[str, Any], path: str, at: str = "") -> tuple[dict[str, Any], str]:
    """Return the mapping that holds a field, and the field's name there. Errors: as `with_values`, for the path."""
    first, *rest = path.split(".")
    if first not in PARTS or not rest:
        raise SpecError(at + path, "names nothing in an experiment", f"begin with {', '.join(PARTS)}")
    place: Any = data
    for part in (first, *rest[:-1]):
        check_known(at + path, part, place, "field")
        inner = place[part]
        if not isinstance(inner, dict):
            raise SpecError(at + path, f"{part!r} has nothing below it", "name a field as the spec writes it")
        place = inner
    return place, rest[-1]
