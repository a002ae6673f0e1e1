"""Tasks as TOML that `load_task` reads back."""

import json
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from anchorlab.errors import SpecError
from anchorlab.tasks.registry import parse_task
from anchorlab.tasks.task import Task


def toml_text(task: Task) -> str:
    """Return a task's full specification as TOML, without fields that are None; `load_task` builds an equal task.

    Errors: `SpecError` for an unregistered family, or a task that would change when read back.
    """
    text = "\n".join(_table(task.model_dump(mode="json"), ())) + "\n"
    if parse_task(tomllib.loads(text)) != task:
        remedy = "make None the default of every field that may be None"
        raise SpecError("task", "would change when read back from TOML", remedy)
    return text


def _table(data: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    """Yield the lines of a table: plain values first, then the tables inside it."""
    tables = {name: value for name, value in data.items() if isinstance(value, Mapping)}
    for name, value in data.items():
        if value is not None and name not in tables:
            yield f"{_key(name)} = {_value(value)}"
    for name, value in tables.items():
        inner = (*path, _key(name))
        yield from ("", f"[{'.'.join(inner)}]", *_table(value, inner))


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        entries = (f"{_key(name)} = {_value(entry)}" for name, entry in value.items() if entry is not None)
        return "{" + ", ".join(entries) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    return _quoted(value) if isinstance(value, str) else json.dumps(value)  # JSON's numbers and booleans are TOML's


def _key(name: str) -> str:
    bare = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    return name if bare else _quoted(name)


def _quoted(text: str) -> str:
    """Return text in double quotes: TOML has JSON's escapes, and also escapes the delete character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
