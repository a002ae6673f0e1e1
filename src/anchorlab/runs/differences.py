"""How runs differ: two of them in all fields and metrics, many of one label in the shortest set of fields."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from anchorlab.runs.entry import Entry, flat
from anchorlab.runs.query import short_names, text_of

if TYPE_CHECKING:
    import polars

MISSING = "—"
"""Stands for the value of a field that one of the two specifications lacks."""

_NAMED_FIRST = ("model", "recipe", "task", "start", "members")


def differing(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the fields in which two specifications differ, by dotted path, with both values.

    >>> differing({"model": {"layers": 1, "heads": 2}}, {"model": {"layers": 3, "heads": 2}})
    {'model.layers': (1, 3)}
    """
    one, other = dict(flat(first)), dict(flat(second))
    pairs = {path: (one.get(path, MISSING), other.get(path, MISSING)) for path in sorted({**one, **other})}
    # `True == 1 == 1.0` in Python, also in lists, but as JSON they are different values of a specification.
    return {path: (a, b) for path, (a, b) in pairs.items() if json.dumps(a) != json.dumps(b)}


def side_by_side(first: "polars.DataFrame", second: "polars.DataFrame") -> "polars.DataFrame":
    """Return the final metrics of two runs: each measured quantity with both means and their difference.

    Args:
        first, second: tables of metrics

    Returns: columns split, group, edit, metric, first, second (means over members) and difference (second - first);
    None if a run did not measure the quantity.
    """
    import polars as pl

    from anchorlab.runs.metrics import last_metrics

    keys = ["split", "group", "edit", "metric"]
    one, other = (last_metrics(table).select(*keys, "mean") for table in (first, second))
    both = one.rename({"mean": "first"}).join(other.rename({"mean": "second"}), on=keys, how="full", coalesce=True)
    return both.with_columns((pl.col("second") - pl.col("first")).alias("difference")).sort(keys)


def differences(entries: Iterable[Entry]) -> dict[str, dict[str, Any]]:
    """Return, by address, the fields of the specification that tell a run from others with the same label.

    A run with a unique label has no such fields, nor has a damaged run. The set of fields is a shortest one, or nearly.
    """
    alike: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        alike[entry.name].append(entry)
    found: dict[str, dict[str, Any]] = {}
    for group in alike.values():
        fields = [dict(flat(entry.spec)) for entry in group]
        names = shortest([{name: json.dumps(value) for name, value in one.items()} for one in fields])
        for entry, values in zip(group, fields, strict=True):
            found[entry.address] = {name: values[name] for name in names if name in values}
    return found


def shortest(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Return a shortest set of names, or nearly, whose values differ between any two rows that differ at all.

    >>> shortest([{"a": "1", "b": "1"}, {"a": "1", "b": "2"}])
    ['b']
    """
    names = sorted({name for row in rows for name in row}, key=_rank)
    columns = {name: column for name in names if len(set(column := [row.get(name) for row in rows])) > 1}

    def parts(chosen: Iterable[str]) -> int:
        return len(set(zip(*(columns[name] for name in chosen), strict=True)))

    taken: list[str] = []
    while parts(taken) < parts(columns):
        taken.append(max(columns, key=lambda name: parts([*taken, name])))  # of several, what people would name first
    return sorted(taken, key=_rank)


def _rank(name: str) -> tuple[int, int, bool, str]:
    """Return a sort key in the order people name fields: `_NAMED_FIRST`, then others; nested later, kinds first."""
    parts = name.split(".")
    return (*_NAMED_FIRST, parts[0]).index(parts[0]), len(parts), parts[-1] != "kind", name


def words(different: Mapping[str, Any]) -> str:
    """Return fields and values as text, such as `layers 2, heads 1`; a field's short name is used if it is unique."""
    named = zip(short_names(list(different)), different.values(), strict=True)
    return ", ".join(f"{name.replace('_', ' ')} {text_of(value)}" for name, value in named)
