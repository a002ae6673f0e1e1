"""Query the runs of a store: look up fields by dotted paths, filter by conditions on them, and sort by them."""

import json
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, cached_property
from operator import itemgetter
from typing import Any

from anchorlab.errors import SpecError
from anchorlab.plain import parse_json
from anchorlab.runs.entry import Entry, flat

_SIGNS = {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt, "=": operator.eq, "!=": operator.ne}
_CONDITION = re.compile(r"\s*(?P<field>\w[^=!<>]*?)\s*(?P<operator>!=|<=|>=|==|=|<|>)\s*(?P<value>.*?)\s*", re.DOTALL)
_TIME = re.compile(r"\d{4}(-\d\d(-\d\d([ T]\d\d(:\d\d)?)?)?)?")
_WORDS = {"none": None, "null": None, "true": True, "false": False}

_OWN: dict[str, Callable[[Entry], Any]] = {
    "run": lambda entry: entry.address,
    "label": lambda entry: entry.name,
    "trained": lambda entry: entry.spec.get("trained", True),
    "members": lambda entry: entry.members,
    "state": lambda entry: entry.state,
    "when": lambda entry: entry.when,
    "MB": lambda entry: entry.megabytes,
}
OWN = (*_OWN, "studies")
"""The fields of a run outside its specification, its environment and its metrics."""

_EXACT: dict[str, Callable[[Entry], Any]] = {"when": lambda entry: entry.changed, "MB": lambda entry: entry.size}
"""Exact values to sort by in place of the rounded values that listings show."""

_OF_DAMAGED = ("run", "state", "when", "MB", "studies")
"""The fields that are known even if a run's specification is damaged."""


@dataclass(frozen=True)
class Condition:
    """A condition such as `model.layers=2`: a field, an operator and a value.

    A list equals a value if it is the same list or contains that item, as in `members.seeds=3`. A field that a run
    lacks has the value `none`; so has one that is left out at its default (`Spec.later`). `!=` is the negation of `=`.
    The other operators compare numbers with numbers and text with text, and are false for any other pair. A field of
    text, such as `label`, equals a number as it is written: `label=2024`. `when` is compared as far as it is written:
    `when=2026-11-20` is that day.
    """

    field: str
    operator: str
    value: Any
    written: str = ""  # the value as text

    @classmethod
    def parse(cls, text: str) -> "Condition":
        """Parse a condition. Errors: `SpecError` at `where` if the text is not one."""
        match = _CONDITION.fullmatch(text)
        if match is None or (match["value"] or match["operator"].strip("="))[:1] in ("<", ">", "="):
            remedy = "write one such as model.layers=2, with = != < <= > >="
            raise SpecError("where", f"{text!r} is not a condition", remedy)
        if match["field"].lower() == "when" and not _TIME.fullmatch(match["value"]):
            raise SpecError("where.when", f"{match['value']!r} is no time", "write 2026-11-20 or 2026-11-20T13:05")
        return cls(match["field"], match["operator"].replace("==", "="), _value(match["value"]), match["value"])

    def holds(self, found: Any) -> bool:
        """Return whether the field value `found` fulfils the condition."""
        if self.field.lower() == "when":
            return bool(_SIGNS[self.operator](found[: len(self.written)], self.written.replace("T", " ")))
        if self.operator in ("=", "!="):
            every = [found, *found] if isinstance(found, list | frozenset) else [found]
            return any(map(self._equals, every)) == (self.operator == "=")
        numbers = _is_number(found) and _is_number(self.value)
        texts = isinstance(found, str) and isinstance(self.value, str)
        return (numbers or texts) and bool(_SIGNS[self.operator](found, self.value))

    def _equals(self, found: Any) -> bool:
        return _same(found, self.written if _is_number(self.value) and isinstance(found, str) else self.value)


class Fields:
    """The fields of a list of runs, by dotted paths.

    Args:
        entries: the runs
        ends: returns their final metrics, by address and `SPLIT.METRIC`; called at most once, when a metric is needed
        studies: returns, by a run's address, the names of the studies whose findings were made from it; called at most
            once, when they are needed
    """

    def __init__(
        self,
        entries: Sequence[Entry],
        ends: Callable[[], Mapping[str, Mapping[str, float]]] = dict,
        studies: Callable[[], Mapping[str, frozenset[str]]] = dict,
    ) -> None:
        self.entries = entries
        self._ends, self._studies = cache(ends), cache(studies)
        self._flat: dict[tuple[str, int], dict[str, Any]] = {}

    def resolve(self, name: str, at: str) -> str:
        """Return the full path of a field that may be abbreviated, such as `layers` for `model.layers`.

        If there are no runs, any name is accepted.

        Errors: `SpecError` at `at` for a field that no run has, and for an ambiguous abbreviation.
        """
        name = name if name.startswith("metrics.") or name in self._paths else name.replace("-", "_")
        own = {one.lower(): one for one in OWN} | {"study": "studies"}
        if name.lower() in own:
            return own[name.lower()]
        if name in self._paths or not self.entries:
            return name
        meant = [path for path, given in self._paths.items() if given and _abbreviates(name, path)]
        if not meant:  # tried last: reading the metrics of new runs is slow
            meant = [path for path in self._metric_paths if name == path or _abbreviates(name, path)]
        if len(meant) == 1:
            return meant[0]
        if meant:
            raise SpecError(at, f"{name!r} may mean {', '.join(sorted(meant))}", "write one of them")
        raise SpecError(at, f"no run has a field {name!r}", _nearest(name, [*OWN, *self._paths, *self._metric_paths]))

    def paths(self) -> list[str]:
        """Return the full paths of all fields except those in `OWN`: the model's first, the metrics' last."""
        parts = ("model", "recipe", "task", "members")
        own = [path for path in self._paths if path not in OWN]
        rank = {part: at for at, part in enumerate(parts)}
        own.sort(key=lambda path: (rank.get(path.partition(".")[0], len(parts)), path))
        return [*own, *sorted(self._metric_paths)]

    def value(self, entry: Entry, path: str) -> Any:
        """Return a run's value of the field with this full path; None if the run lacks the field."""
        if path in _OWN:
            return _OWN[path](entry)
        if path == "studies":
            return self._studies().get(entry.address, frozenset())
        part, _, rest = path.partition(".")
        if part == "metrics":
            return self._ends().get(entry.address, {}).get(rest)
        if part == "environment":
            return entry.environments[-1].get(rest) if entry.environments else None
        return self._fields(part, entry.spec.get(part)).get(path)

    def is_lost(self, entry: Entry, path: str) -> bool:
        """Return whether a run's value of a field is unknown because the file that holds it is damaged."""
        if entry.state == "damaged":
            return path not in _OF_DAMAGED
        return path.startswith("metrics.") and entry.state == "finished" and entry.address not in self._ends()

    def _fields(self, name: str, part: Any) -> dict[str, Any]:
        """Return the fields of a part of a specification by full path; runs that share the part share the result."""
        key = name, id(part)  # the entries keep the part alive
        if key not in self._flat:
            self._flat[key] = dict(flat({name: part}))
        return self._flat[key]

    @cached_property
    def _paths(self) -> dict[str, bool]:
        """The paths in specifications and environments, each with whether any run has a value other than None."""
        found: dict[str, bool] = {}
        parts = {(name, id(part)): part for entry in self.entries for name, part in entry.spec.items()}
        for (name, _), part in parts.items():
            for path, value in self._fields(name, part).items():
                found[path] = found.get(path, False) or value is not None
        versions = {name for entry in self.entries for one in entry.environments[-1:] for name in one}
        return found | {f"environment.{name}": True for name in versions}

    @cached_property
    def _metric_paths(self) -> set[str]:
        return {f"metrics.{name}" for found in self._ends().values() for name in found}


def chosen(fields: Fields, conditions: Iterable[Condition]) -> tuple[list[Entry], list[Entry]]:
    """Return the runs that fulfil all conditions, and the damaged runs that may fulfil them.

    A damaged run may fulfil them if it fulfils every condition whose value can still be read.

    Errors: `SpecError` for an unknown or ambiguous field.
    """
    resolved = [(fields.resolve(one.field, f"where.{one.field}"), one) for one in conditions]
    found, damaged = [], []
    for entry in fields.entries:
        held = [one.holds(fields.value(entry, path)) for path, one in resolved]
        if all(held):
            found.append(entry)
        lost = [fields.is_lost(entry, path) for path, _ in resolved]
        if any(lost) and all(one or gone for one, gone in zip(held, lost, strict=True)):
            damaged.append(entry)
    return found, damaged


def damage_note(entries: Sequence[Entry]) -> str:
    """Return a one-line warning that names damaged runs, which may be missing from a result."""
    named = ", ".join(entry.address for entry in entries[:3]) + (", ..." if len(entries) > 3 else "")
    count = "1 damaged run" if len(entries) == 1 else f"{len(entries)} damaged runs"
    return f"{count} cannot be read and may be missing: {named}; `anchorlab runs check` says what is damaged"


def ordered(fields: Fields, entries: Iterable[Entry], names: Sequence[str], reverse: bool) -> list[Entry]:
    """Sort runs by several fields, the first field being the primary key; runs without a value come last.

    Errors: `SpecError` for an unknown or ambiguous field.
    """
    found = list(entries)
    for name in reversed(names):
        path = fields.resolve(name, "sort")
        exact = _EXACT.get(path)
        keyed = [(_comparable(exact(entry) if exact else fields.value(entry, path)), entry) for entry in found]
        with_value = sorted((one for one in keyed if one[0] is not None), key=itemgetter(0), reverse=reverse)
        found = [entry for _, entry in with_value] + [entry for key, entry in keyed if key is None]
    return found


def _comparable(value: Any) -> Any:
    """Return a key for sorting: numbers, then text, then lists; None for no value, and for NaN, which has no order."""
    if value is None or value == frozenset() or value != value:
        return None
    if isinstance(value, int | float):
        return 0, value
    if isinstance(value, list | frozenset):
        items = sorted(value) if isinstance(value, frozenset) else value
        return 2, [_comparable(one) or (-1,) for one in items]
    return 1, text_of(value)


def short_names(paths: Sequence[str]) -> list[str]:
    """Return the last name of each path, or the whole path if several paths end in the same name.

    >>> short_names(["model.layers", "recipe.data.kind", "model.kind"])
    ['layers', 'recipe.data.kind', 'model.kind']
    """
    last = [path.rpartition(".")[2] for path in paths]
    return [short if last.count(short) == 1 else path for path, short in zip(paths, last, strict=True)]


def text_of(value: Any) -> str:
    """Return a field's value as readable text: consecutive integers as `0..9`, other lists by item, None as `none`."""
    if value is None:
        return "none"
    if isinstance(value, frozenset):
        return ", ".join(sorted(value))
    if isinstance(value, list | tuple):
        whole = all(isinstance(one, int) and not isinstance(one, bool) for one in value)
        if whole and len(value) > 1 and list(value) == list(range(value[0], value[0] + len(value))):
            return f"{value[0]}..{value[-1]}"
        return ", ".join(text_of(one) for one in value)
    if isinstance(value, Mapping):
        return json.dumps(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _same(one: Any, other: Any) -> bool:
    """Return whether two values are equal; unlike in Python, `true` is not 1."""
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def _value(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return parse_json(text)
    except ValueError:
        return text


def _nearest(name: str, paths: Iterable[str]) -> str:
    known = sorted(paths)
    last = {path.rpartition(".")[2]: path for path in known}
    near = get_close_matches(name, known, n=1) or [last[one] for one in get_close_matches(name, last, n=1)]
    metrics = [path for path in known if path.startswith("metrics.")]  # a name unlike all others is mostly a metric
    near = near or get_close_matches(name, metrics or known, n=1, cutoff=0.0)
    return f"the nearest is {near[0]!r}, and `anchorlab runs show RUN` lists all"


def _abbreviates(name: str, path: str) -> bool:
    """Return whether `name` abbreviates `path`: its parts occur in the path in order, and both end in the same part."""
    rest = iter(path.split("."))
    return path.endswith(f".{name.rpartition('.')[2]}") and all(one in rest for one in name.split("."))
