"""Entries of the index: the data that a listing shows for one run, without opening its directory."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from anchorlab.errors import StoreError
from anchorlab.runs.run import Run

ODD = (StoreError, OSError, ValueError, LookupError, TypeError, AttributeError)
"""The errors from reading files of a run that are malformed or have been removed."""

_LARGEST = 2**60  # bytes of a run; SQLite's integers end at 2**63
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


def entry_of(run: Run) -> Entry:
    """Return the entry of a run, read from its directory and checked, except for metrics and tensors."""
    state, changed = "finished" if run.finished else "unfinished", 0
    try:
        changed = run.changed
        if state == "unfinished" and run.is_empty:
            return Entry(run.address, state, "", 0, run.size, changed)
        record = run.record
        if state == "unfinished":
            size = run.size
        else:
            size = min(sum(one.size for one in run.files.values()) + run.manifest_path.lstat().st_size, _LARGEST)
        members = record["spec"].get("members")
        seeds = members.get("seeds", ()) if isinstance(members, Mapping) else members or ()
        environments = record["environments"]
        return Entry(run.address, state, record["label"], len(seeds), size, changed, record["spec"], environments)
    except ODD:
        return Entry(run.address, "damaged", "", 0, run.size, changed)
