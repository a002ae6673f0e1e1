"""Select the runs of a store that fulfil the conditions of `--where`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from anchorlab.cli.output import print_problem, waiting

if TYPE_CHECKING:
    from anchorlab.runs import Entry, Fields

Where = Annotated[list[str] | None, Parameter(negative="", consume_multiple=True, show_default=False)]
"""The option `--where` of commands on several runs: one or several conditions."""


def matching(store: Path | None, where: list[str] | None, quiet: bool) -> "tuple[Fields, list[Entry]]":
    """Return the fields of a store's runs, and the runs that fulfil all conditions.

    Damaged runs, of which nobody knows whether they do, are told on the standard error output.

    Errors: `SpecError` for a condition that cannot be read, or on a field that no run has.
    """
    from anchorlab.runs import Condition, Fields, Index, Store, chosen, studies_by_run
    from anchorlab.runs.query import undecided

    conditions = [Condition.parse(text) for text in where or ()]
    kept = Store(store)
    index = Index(kept.root)
    with waiting("reading the runs of the store", quiet):
        entries = index.entries()

    def ends() -> dict[str, dict[str, float]]:
        with waiting("reading the metrics of the runs", quiet):
            return index.ends(entries)

    fields = Fields(entries, ends, lambda: studies_by_run(kept.root))
    found = chosen(fields, conditions)
    tell_damage(undecided(fields, conditions))
    return fields, found


def tell_damage(entries: "Sequence[Entry]") -> None:
    """Print in one line on the standard error output that runs are damaged, if any are."""
    from anchorlab.runs.query import damage_note

    if entries:
        print_problem(damage_note(entries))


def size_text(size: int) -> str:
    """Return a number of bytes in words: `7.7 kB`, `1.2 GB`."""
    for unit, least in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= least:
            return f"{size / least:.3g} {unit}"
    return f"{size} bytes"
