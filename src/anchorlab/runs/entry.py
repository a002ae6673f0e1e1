"""Entries of the index: the data that a listing shows for one run, without opening its directory."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

_LATEST = 2.0**37  # seconds since 1970; `datetime` overflows only later


class Entry(NamedTuple):
    """The data that a listing shows for one run.

    Fields
        state: `finished`, `unfinished`, or `damaged` if its specification or its manifest cannot be read
        members: the number of members
        size: bytes on disk
        changed: when the run was finished, or started if it is not, in nanoseconds since 1970; 0 if that is unknown
        spec: the specification of its cell; do not change it, because runs share its parts
        environments: the environments it was computed in
    """

    address: str
    state: str
    label: str
    members: int
    size: int
    changed: int
    spec: Mapping[str, Any] = {}
    environments: Sequence[Mapping[str, str | None]] = ()

    @property
    def modified(self) -> float:
        """When the run was finished, or started if it is not, in seconds since 1970."""
        return self.changed / 1e9

    @property
    def when(self) -> str:
        """The local time of `modified`, to the minute."""
        return f"{datetime.fromtimestamp(min(max(self.modified, 0.0), _LATEST)):%Y-%m-%d %H:%M}"

    @property
    def megabytes(self) -> float:
        """The size in millions of bytes, with three significant digits."""
        return float(f"{self.size / 1e6:.3g}")

    @property
    def name(self) -> str:
        """The label, followed by `, untrained` for untrained members."""
        return self.label if self.spec.get("trained", True) else f"{self.label}, untrained"


def flat(data: Mapping[str, Any], at: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the nested fields of plain data with their dotted paths; a list is one value.

    >>> list(flat({"model": {"layers": 2}, "format": 1}))
    [('model.layers', 2), ('format', 1)]
    """
    for name, value in data.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{at}{name}.")
        else:
            yield f"{at}{name}", value
