"""What commands share in reading their options."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from anchorlab.errors import SpecError
from anchorlab.tasks import Task, load_task
from anchorlab.tasks import task as make_task

Fields = Annotated[dict[str, str] | None, Parameter(show_default=False)]
"""Options of one part, each as `--part.field value`, deeper ones as `--part.field.field value`."""


def nested(fields: Mapping[str, str] | None) -> dict[str, Any]:
    """`{"data/size": "5"}` as `{"data": {"size": "5"}}`, dashes as underscores."""
    found: dict[str, Any] = {}
    for path, value in (fields or {}).items():
        *parents, last = path.replace("-", "_").split("/")
        inner = found
        for parent in parents:
            inner = inner.setdefault(parent, {})
            if not isinstance(inner, dict):
                raise SpecError(path.replace("/", "."), f"{parent!r} has a value already", "give one of the two")
        inner[last] = value
    return found


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Plain data with some fields changed, at any depth; a changed `kind` starts its part afresh."""
    result = dict(base)
    for name, value in changes.items():
        old = result.get(name)
        if isinstance(value, Mapping) and isinstance(old, Mapping) and value.get("kind", old.get("kind")) == old.get("kind"):
            result[name] = merged(old, value)
        else:
            result[name] = value
    return result


def values(text: Any) -> Any:
    """A list written with commas as a list, anything else as it is."""
    if isinstance(text, Mapping):
        return {name: values(value) for name, value in text.items()}
    if isinstance(text, str) and "," in text:
        return [part.strip() for part in text.split(",") if part.strip()]
    return None if text == "none" else text


def read_seeds(text: str) -> tuple[int, ...]:
    """`0:10` as the seeds 0 to 9, `0,3,5` as these; errors name `--seeds`."""
    seeds: list[int] = []
    for part in text.split(","):
        bounds = re.fullmatch(r"\s*(\d+)\s*:\s*(\d+)\s*", part)
        if bounds:
            seeds += range(int(bounds[1]), int(bounds[2]))
        elif part.strip().isdigit():
            seeds.append(int(part))
        else:
            raise SpecError("seeds", f"{text!r} is not a list of seeds", "write 0:10 for ten seeds, or 0,3,5")
    if not seeds:
        raise SpecError("seeds", f"{text!r} holds no seed", "write 0:10 for ten seeds")
    return tuple(seeds)


def read_task(name: str, fields: Mapping[str, str] | None) -> Task:
    """A registered task by name, or one declared in a TOML file."""
    if name.endswith(".toml"):
        if fields:
            raise SpecError("task", "options cannot change a task from a file", f"edit {Path(name).name} instead")
        return load_task(Path(name))
    return make_task(name, **values(nested(fields)))
