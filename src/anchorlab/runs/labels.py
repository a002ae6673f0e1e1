"""What tells runs apart: the shortest set of fields in which those of one label differ."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

from anchorlab.runs.entry import Entry, flat
from anchorlab.runs.query import short_names, text_of

_EXHAUSTIVE = 2  # fields up to which every set is tried; beyond, the best next field is added in turn
_NAMED_FIRST = ("model", "recipe", "task", "start", "members")
_MOST = 200  # runs of one label among which every set is tried


def differences(entries: Iterable[Entry]) -> dict[str, dict[str, Any]]:
    """Return, by address, the fields of the specification that tell a run from the others of its label.

    Runs that have a label alone, and damaged ones, have none. The fields are those of a shortest set, or of nearly one
    where there are many.
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
    """Return a shortest set of names whose values differ between any two rows that differ at all.

    >>> shortest([{"a": "1", "b": "1"}, {"a": "1", "b": "2"}])
    ['b']
    """
    names = sorted({name for row in rows for name in row})
    columns = {name: tuple(row.get(name) for row in rows) for name in names}
    # Of several columns that divide the rows alike, one is enough: the one that people would name first.
    kinds: dict[tuple[int, ...], str] = {}
    for name in sorted(names, key=_rank):
        first: dict[str | None, int] = {}
        division = tuple(first.setdefault(value, at) for at, value in enumerate(columns[name]))
        if any(division):
            kinds.setdefault(division, name)
    wanted = len(set(zip(*kinds, strict=True))) if kinds else 1
    if wanted == 1:
        return []
    if len(rows) <= _MOST:
        for size in range(1, _EXHAUSTIVE + 1):
            for one in combinations(kinds, size):
                if len(set(zip(*one, strict=True))) == wanted:
                    return sorted((kinds[division] for division in one), key=_rank)
    taken: list[tuple[int, ...]] = []
    while len(set(zip(*taken, strict=True))) < wanted:
        rest = [division for division in kinds if division not in taken]
        taken.append(max(rest, key=lambda division: len(set(zip(*taken, division, strict=True)))))
    return sorted((kinds[division] for division in taken), key=_rank)


def _rank(name: str) -> tuple[int, int, str]:
    """Return a key that sorts fields as people would name them: the model's first, seeds last, nested ones later."""
    part = name.partition(".")[0]
    return _NAMED_FIRST.index(part) if part in _NAMED_FIRST else len(_NAMED_FIRST), name.count("."), name


def words(different: Mapping[str, Any]) -> str:
    """Return fields and values in words, each field by its last name if no other has that: `layers 2, heads 1`."""
    named = zip(short_names(list(different)), different.values(), strict=True)
    return ", ".join(f"{name.replace('_', ' ')} {text_of(value)}" for name, value in named)
