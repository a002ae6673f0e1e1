"""Find the runs that can be removed, grouped by the reason why nothing needs them."""

from collections.abc import Collection, Iterable, Sequence

from anchorlab.runs.cell import Cell
from anchorlab.runs.entry import Entry
from anchorlab.runs.references import Use

KINDS = {
    "orphans": "no study's findings were made from them",
    "superseded": "only earlier findings of a study were made from them, or their format is older than that of others",
    "unfinished": "begun and not finished, and no process is writing them; training would continue them",
    "damaged": "their specification or manifest cannot be read",
}
"""The kinds of removable runs, with the reason. A run is of at most one kind."""


def removable(entries: Sequence[Entry], uses: Iterable[Use], written: Collection[str] = ()) -> dict[str, list[Entry]]:
    """Return the removable runs of each kind of `KINDS`.

    A run is kept, and so of no kind, if findings in the store were made from it, if a process is writing it, or if such
    findings' runs or unfinished runs started from it, directly or through other runs.

    Args:
        entries: all runs of the store
        uses: the runs behind its findings
        written: the addresses of runs that a process is writing
    """
    uses = list(uses)
    earlier = {address for use in uses for address in use.earlier}
    needed = {address for use in uses for address in use.runs}
    newest = max((_format(entry) for entry in entries), default=0)
    # Starts form chains: follow them to the first run.
    start_of = {entry.address: Cell(entry.spec["start"]).address for entry in entries if "start" in entry.spec}
    chain = {*needed, *(entry.address for entry in entries if entry.state == "unfinished")}
    while chain := {start_of[address] for address in chain if address in start_of}:
        needed |= chain
    found: dict[str, list[Entry]] = {kind: [] for kind in KINDS}
    for entry in entries:
        if entry.address in needed or entry.address in written:
            continue
        if entry.state != "finished":
            found[entry.state].append(entry)
        elif entry.address in earlier or _format(entry) < newest:
            found["superseded"].append(entry)
        else:
            found["orphans"].append(entry)
    return found


def _format(entry: Entry) -> int:
    value = entry.spec.get("format", 0)
    return value if isinstance(value, int) else 0
