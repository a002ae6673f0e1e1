"""Options of the parts of an experiment: `--model.layers 4`, `--recipe.data.size 600`, at any depth."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from cyclopts import Parameter

from anchorlab.errors import SpecError

PARTS = ("task", "model", "recipe", "members")
"""The parts whose fields are options."""

Fields = list[str] | None
"""The options of one part as the command gets them: `data.size=600` and so on."""

_OPTION = re.compile(rf"--(?P<part>{'|'.join(PARTS)})\.(?P<path>[^=]*)(?:=(?P<value>.*))?", re.DOTALL)


def part(name: str) -> Parameter:
    """The option `--name.FIELD` for the fields of a part."""
    return Parameter(name=f"--{name}.FIELD", negative="", show_default=False)


def fold(tokens: Sequence[str]) -> list[str]:
    """`--recipe.data.size 600` as `--recipe.FIELD data.size=600`, which the parser of options can read.

    Errors: `SpecError` for an option without a value.
    """
    folded: list[str] = []
    rest = iter(tokens)
    for token in rest:
        match = _OPTION.fullmatch(token)
        if match is None:
            folded.append(token)
            continue
        value = match["value"] if match["value"] is not None else next(rest, "--")
        option = f"{match['part']}.{match['path']}"
        if match["value"] is None and value.startswith("--"):
            raise SpecError(option, "has no value", f"write --{option} VALUE")
        folded.append(f"--{match['part']}.FIELD={match['path']}={value}")
    return folded


def nested(fields: Fields, at: str) -> dict[str, Any]:
    """`["data.size=5"]` as `{"data": {"size": "5"}}`: dashes as underscores, values as `read_value` reads them.

    Errors: `SpecError` below `at` for a field without a name, given twice, or given both whole and in parts.
    """
    found: dict[str, Any] = {}
    for written in fields or ():
        path, equals, value = written.partition("=")
        names = canonical(path).split(".")
        if not equals or not all(names):
            raise SpecError(f"{at}.{path}", "is no field", f"write --{at}.FIELD VALUE")
        inner = found
        for name in names[:-1]:
            inner = inner.setdefault(name, {})
            if not isinstance(inner, dict):
                raise SpecError(f"{at}.{path}", f"{name!r} has a value of its own already", "give one of the two")
        if names[-1] in inner:
            raise SpecError(f"{at}.{path}", "is given twice", "give it once")
        inner[names[-1]] = read_value(value, f"{at}.{path}")
    return found


def read_value(text: str, at: str) -> Any:
    """A value of the command line: `none`, a list written with commas, JSON in brackets, or the text as it is.

    A rule such as `A x y -> max(x, y)`, or pairs such as `3,4;4,3`, are text.

    Errors: `SpecError` at `at` for JSON that cannot be read.
    """
    if text[:1] in ("[", "{"):
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise SpecError(at, f"cannot be read as JSON: {error}", "mend its brackets and quotes") from None
    if "," in text and not set(text) & set("();>"):  # what stands in a rule or in pairs is the field's own to read
        return [item.strip() for item in text.split(",") if item.strip()]
    return None if text == "none" else text


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Plain data with some fields changed, at any depth; a changed `kind` starts its part afresh."""
    result = dict(base)
    for name, value in changes.items():
        old = result.get(name)
        if (
            isinstance(value, Mapping)
            and isinstance(old, Mapping)
            and value.get("kind", old.get("kind")) == old.get("kind")
        ):
            result[name] = merged(old, value)
        else:
            result[name] = value
    return result


def canonical(path: str) -> str:
    """A field's path as files and Python write it."""
    return path.replace("-", "_")


@contextmanager
def as_written(options: Iterable[str], short: Mapping[str, str]) -> Iterator[None]:
    """Errors inside name a field as the user wrote it: `options` are the paths written, `short` what some stand for."""
    try:
        yield
    except SpecError as error:
        for option in options:
            path = short.get(canonical(option), canonical(option))
            if f"{error.field}.".startswith(f"{path}."):
                raise SpecError(option + error.field[len(path) :], error.problem, error.remedy) from None
        raise


def written(parts: Mapping[str, Fields]) -> list[str]:
    """The paths of the fields given, as they were written."""
    return [f"{name}.{option.partition('=')[0]}" for name, options in parts.items() for option in options or ()]
