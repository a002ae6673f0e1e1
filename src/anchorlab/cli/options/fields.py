"""Options for fields at any depth: `--model.layers 4`, `--recipe.data.size 600`, `--slurm.partition gpu`."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from cyclopts import Parameter

from anchorlab.errors import SpecError
from anchorlab.plain import MOST_DEPTH, TOO_DEEP, parse_json

PARTS = ("task", "model", "recipe", "members", "slurm")
"""The prefixes of options for fields: the parts of an experiment, and `slurm` for the options of Slurm jobs."""

Fields = list[str] | None
"""The options of one part as a command receives them, such as `["data.size=600"]`."""

_LESS = "write it with fewer"
_OPTION = re.compile(rf"--(?P<part>{'|'.join(PARTS)})\.(?P<path>[^=]*)(?:=(?P<value>.*))?", re.DOTALL)


def part(name: str) -> Parameter:
    """Return the declaration of `--name.FIELD`, the option for the fields of a part."""
    return Parameter(name=f"--{name}.FIELD", negative="", show_default=False)


def fold(tokens: Sequence[str]) -> list[str]:
    """Return the arguments with `--recipe.data.size 600` as `--recipe.FIELD=data.size=600`, which the parser knows.

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
    """Return `["data.size=5"]` as `{"data": {"size": "5"}}`, with underscores for dashes and values by `read_value`.

    Errors: `SpecError` below `at` for a field without a name, given twice, or given both whole and in parts.
    """
    found: dict[str, Any] = {}
    for written in fields or ():
        path, equals, value = written.partition("=")
        names = canonical(path).split(".")
        if not equals or not all(names):
            raise SpecError(f"{at}.{path}", "is not a field", f"write --{at}.FIELD VALUE")
        if len(names) > MOST_DEPTH:
            raise SpecError(f"{at}.{names[0]}", TOO_DEEP, _LESS)
        inner = found
        for name in names[:-1]:
            inner = inner.setdefault(name, {})
            if not isinstance(inner, dict):
                raise SpecError(f"{at}.{path}", f"{name!r} already has a value", "give one of the two")
        if names[-1] in inner:
            raise SpecError(f"{at}.{path}", "is given twice", "give it once")
        inner[names[-1]] = read_value(value, f"{at}.{path}")
    return found


def read_value(text: str, at: str) -> Any:
    """Return the value of an option: None for `none`, a list for commas, JSON for brackets, or else the text itself.

    A rule such as `A x y -> max(x, y)` and pairs such as `3,4;4,3` remain text.

    Errors: `SpecError` at `at` for invalid JSON, and for lists or tables that are nested too deeply.
    """
    from anchorlab.spec import typed  # late, because it imports pydantic

    if text[:1] in ("[", "{"):
        try:
            return parse_json(text)
        except ValueError as error:
            if str(error) == TOO_DEEP:
                raise SpecError(at, TOO_DEEP, _LESS) from None
            raise SpecError(at, f"is not valid JSON: {error}", "check its brackets and quotes") from None
    if "," in text and not set(text) & set("();>"):  # the field itself parses rules and pairs
        return [typed(item.strip()) for item in text.split(",") if item.strip()]
    return None if text == "none" else typed(text)


def canonical(path: str) -> str:
    """Return a field's path with underscores for dashes, as files and Python write it."""
    return path.replace("-", "_")


@contextmanager
def as_written(options: Iterable[str], short: Mapping[str, str]) -> Iterator[None]:
    """Within `with`, make every `SpecError` name its field as the user wrote it.

    `options` are the paths on the command line; `short` maps abbreviated paths to full ones.
    """
    try:
        yield
    except SpecError as error:
        for option in options:
            path = short.get(canonical(option), canonical(option))
            if f"{error.field}.".startswith(f"{path}."):
                raise SpecError(option + error.field[len(path) :], error.problem, error.remedy) from None
        raise


def written(parts: Mapping[str, Fields]) -> list[str]:
    """Return the paths of the given fields as the user wrote them."""
    return [f"{name}.{option.partition('=')[0]}" for name, options in parts.items() for option in options or ()]
