"""`anchorlab runs list`, and how other commands name and select runs."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from anchorlab.cli.options import shared
from anchorlab.cli.terminal.output import (
    counted,
    print_json,
    print_problem,
    print_table,
    print_text,
    size_text,
    waiting,
)
from anchorlab.errors import SpecError

if TYPE_CHECKING:
    from anchorlab.runs import Entry

_WHERE = "Condition such as `model.layers=2` or `'test.accuracy>0.9'`, with = != < <= > >=; several must all hold."
_FIRST_PAGE = 50  # runs that are shown unless --limit says otherwise


def list_(
    *,
    where: Annotated[shared.Where, Parameter(help=_WHERE)] = None,
    sort: str | None = None,
    reverse: shared.Flag = False,
    columns: str | None = None,
    limit: int | None = None,
    store: shared.ReadStore = None,
    json: shared.Json = False,
) -> None:
    """List the runs in the store, the newest first, with their sizes and the total.

    Fields are the paths of the specification (`model.layers`, or `layers` if only one path ends this way), `run`,
    `label`, `trained`, `members`, `state`, `when`, `MB`, `studies`, versions such as `environment.torch`, and final
    metrics such as `metrics.test.accuracy`.

    Parameters
    ----------
    sort
        Field to sort by, from low to high, or several separated by commas.
    reverse
        Sort from high to low.
    columns
        Fields to show next to the run's address, separated by commas.
    limit
        Number of runs to show: by default 50, with `--json` all; 0 for all.
    """
    from anchorlab.runs import differences, ordered, short_names

    if limit is not None and limit < 0:
        raise SpecError("limit", f"{limit} is negative", "give a number of runs, or 0 for all")
    kept = shared.read_store(store)
    with waiting("reading the runs of the store", quiet=json):
        fields, found, damaged = kept.matching(where or ())
        if sort is None:
            found = sorted(found, key=lambda entry: entry.changed, reverse=not reverse)
        else:
            found = ordered(fields, found, _names(sort, "sort"), reverse)
        names = ["run", *_names(columns, "columns")] if columns else []
        paths = list(dict.fromkeys(fields.resolve(name, "columns") for name in names))
    tell_damage(damaged)
    most = (0 if json else _FIRST_PAGE) if limit is None else limit
    page = found[:most] if most else found
    tell_damage([one for one in page if one.state != "damaged" and any(fields.is_lost(one, path) for path in paths)])
    if json:
        if paths:
            print_json([{path: _data(fields.value(entry, path)) for path in paths} for entry in page])
        else:
            different = differences(page)
            print_json([{**summary(entry), "differs": different[entry.address]} for entry in page])
    elif not fields.entries:
        print_text(f"{kept.root}: has no runs; `anchorlab train TASK` makes one", wrapped=False)
    elif not page:
        print_text(f"none of {counted(len(fields.entries), 'run')} fulfils these conditions")
    else:
        if paths:
            rows = [[_cell(fields.value(entry, path)) for path in paths] for entry in page]
            print_table(short_names(paths), rows)
        else:
            print_runs(page)
        size = sum(entry.size for entry in found)
        shown = counted(len(found), "run") if len(page) == len(found) else f"{len(page)} of {len(found)} runs"
        rest = "" if len(page) == len(found) else "; --limit 0 shows all"
        print_text(f"{shown}, {size_text(size)} in all{rest}")


def tell_damage(entries: "Sequence[Entry]") -> None:
    """Print one line about damaged runs, if there are any, on standard error."""
    from anchorlab.runs.query import damage_note

    if entries:
        print_problem(damage_note(entries))


def summary(entry: "Entry", label: str | None = None) -> dict[str, str | int | float]:
    """Return a row of the list of runs, with `label` in place of the run's own."""
    return {
        "run": entry.address,
        "label": entry.name if label is None else label,
        "members": entry.members,
        "state": entry.state,
        "when": entry.when,
        "MB": entry.megabytes,
    }


def print_runs(entries: "Sequence[Entry]") -> None:
    """Print runs as rows of the list; usual rows fit in 80 columns.

    Each label has the fewest fields that distinguish runs with the same label, and each address the fewest digits, at
    least eight. The year is left out if it is this one.
    """
    from anchorlab.runs import differences, words

    different = differences(entries)
    labels = [", ".join(filter(None, (one.name, words(different[one.address])))) for one in entries]
    rows = [summary(entry, label) for entry, label in zip(entries, labels, strict=True)]
    digits = next(count for count in range(8, 21) if len({one.address[:count] for one in entries}) == len(entries))
    year = f"{datetime.now():%Y-}"
    shown = [{**row, "run": str(row["run"])[:digits], "when": str(row["when"]).removeprefix(year)} for row in rows]
    print_table(tuple(shown[0]), [tuple(row.values()) for row in shown])


def _names(text: str, option: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise SpecError(option, "names no field", "write one such as model.layers")
    return names


def _cell(value: Any) -> str | int | float:
    """Return a value for the table: numbers remain numbers, so that they are aligned; a missing one is empty."""
    from anchorlab.runs import text_of

    if value is None:
        return ""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else text_of(value)


def _data(value: Any) -> Any:
    return sorted(value) if isinstance(value, frozenset) else value
