"""Read a file of rankings: for each model, a number for each of its units. It may come from a stranger."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anchorlab.errors import SpecError
from anchorlab.plain import parse_json, read_data
from anchorlab.spec import unknown_name

MOST_BYTES = 2**20
"""The largest file of rankings in bytes; all models together have a few kB."""

_SHOWN = 60  # characters of a stranger's names
_FORM = 'write {"method": "...", "rankings": {"MODEL": {"UNIT": 1.5}}}'


@dataclass(frozen=True)
class Rankings:
    """The scores that a method gives to the units of each model.

    Fields
        method: the name of the method
        scores: by model, then by unit; the larger the size of a number, the more the unit matters
    """

    method: str
    scores: Mapping[str, Mapping[str, float]]


def read_rankings(path: Path | str, units: Mapping[str, Sequence[str]]) -> Rankings:
    """Read and check a file of rankings.

        {"method": "depth", "rankings": {"identity-1": {"0.0": 4, "0.1": 3, "1.0": 2, "1.1": 1}}}

    Args:
        path: the file, JSON in UTF-8 of at most `MOST_BYTES`
        units: the units of every model that is to be ranked, as in `models/units.json`

    Errors: `SpecError` that names the field, for a file that cannot be read, is too large or no JSON or nested too
    deeply; for an unknown or missing model or unit, or one that is named twice; and for a score that is no finite
    number.
    """
    try:
        data = parse_json(read_data(Path(path), MOST_BYTES, follow=True), once=True)
    except OSError as error:
        raise SpecError(
            "file", f"{path} cannot be read: {error.strerror or error}", "name a file of rankings"
        ) from None
    except json.JSONDecodeError as error:
        raise SpecError("file", f"{path} is no JSON: {error}", _FORM) from None
    except ValueError as error:  # nested too deeply, no UTF-8, a name twice, or a number of thousands of digits
        problem = "is no text in UTF-8" if isinstance(error, UnicodeDecodeError) else f"{error}".partition(";")[0]
        raise SpecError("file", f"{path} {problem}", _FORM) from None
    top = _table(data, "file", ("method", "rankings"), "field")
    method = top["method"]
    if not isinstance(method, str):
        raise SpecError("method", f"should be text, got {_kind(method)}", "name the method")
    rankings = _table(top["rankings"], "rankings", tuple(units), "model")
    scores = {}
    for model, names in units.items():
        found = _table(rankings[model], f"rankings.{model}", names, "unit")
        scores[model] = {unit: _number(found[unit], f"rankings.{model}.{unit}") for unit in names}
    return Rankings(method[:_SHOWN], scores)


def _table(data: Any, field: str, names: Sequence[str], what: str) -> Mapping[str, Any]:
    """Return a table that has exactly these names. Errors: `SpecError` that names the first that is not as expected."""
    if not isinstance(data, dict):
        raise SpecError(field, f"should be a table, got {_kind(data)}", _FORM)
    below = "" if what == "field" else f"{field}."
    for name in data:
        if name not in names:
            raise unknown_name(f"{below}{name[:_SHOWN]}", name[:_SHOWN], names, what)
    for name in names:
        if name not in data:
            raise SpecError(f"{below}{name}", "is missing", f"give every {what}")
    return data


def _number(value: Any, field: str) -> float:
    """Return a finite number. Errors: `SpecError` for anything else, truth values among them."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SpecError(field, f"should be a number, got {_kind(value)}", "give each unit a finite number")
    try:
        number = float(value)
    except OverflowError:  # an integer of hundreds of digits
        number = math.inf
    if not math.isfinite(number):
        raise SpecError(field, "is not finite", "give each unit a finite number")
    return number


def _kind(value: Any) -> str:
    """Return what a value is, in the words of JSON."""
    kinds = {dict: "a table", list: "a list", str: "text", bool: "a truth value", type(None): "null"}
    return kinds.get(type(value), "a number")
