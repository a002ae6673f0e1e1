"""Rankings by others: a number for each unit of each model, read from an untrusted file and scored."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from anchorlab.errors import SpecError
from anchorlab.plain import parse_json, read_data
from anchorlab.rng import torch_generator
from anchorlab.spec import unknown_name
from anchorlab.studies.interval import interval
from anchorlab.truth.agreement import measures, nearest_area_by_chance
from anchorlab.truth.known import Known

if TYPE_CHECKING:
    import polars

MOST_BYTES = 2**20
"""The largest file of rankings in bytes; all models together have a few kB."""

MEASURES = ("area", "area_by_chance", "correlation", "recovered")
"""The columns that `means` averages."""

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

    Errors: `SpecError` that names the field, for a file that cannot be read, is too large, is not JSON or is nested too
    deeply; for a model or unit that is unknown, missing or named twice; and for a score that is not a finite number.
    """
    try:
        data = parse_json(read_data(Path(path), MOST_BYTES, follow=True), once=True)
    except OSError as error:
        problem = f"{path} cannot be read: {error.strerror or error}"
        raise SpecError("file", problem, "name a file of rankings") from None
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


def score_rankings(rankings: Rankings, known: Mapping[str, Known]) -> "polars.DataFrame":
    """Compare rankings with the minimal sets, the Shapley values and the losses of each model.

    Scores count by their absolute value, and columns have the same meaning as in `agreement`. The minimal sets are
    known by construction.

    Returns: one row per model, with the columns `model`, `area`, `area_by_chance`, `correlation`, `size`, `recovered`.
    """
    import polars

    rows = []
    for model, one in known.items():
        values = torch.tensor([[rankings.scores[model][unit] for unit in one.units]], dtype=torch.float64)
        sets = [torch.tensor([[unit in some for unit in one.units] for some in one.truth.minimal])]
        chance = nearest_area_by_chance(sets, torch_generator(0, "rankings"))
        columns = measures(values, sets, one.landscape, chance)
        rows.append({"model": model} | {name: column.item() for name, column in columns.items()})
    return polars.DataFrame(rows)


def means(scored: "polars.DataFrame") -> dict[str, tuple[float, float | None, float | None]]:
    """Return the mean of each measure over models, and the ends of its 95 % interval.

    Models without a value are left out: equal scores for all units, for example, have no correlation. With fewer than
    two models there is no interval.
    """
    found = {}
    for name in MEASURES:
        values = torch.tensor([value for value in scored[name] if value == value], dtype=torch.float64)
        low, high = interval(values) or (None, None)
        found[name] = (values.mean().item(), low, high)
    return found
