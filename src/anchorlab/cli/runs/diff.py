"""`anchorlab runs diff`."""

from anchorlab.cli.options import shared
from anchorlab.cli.runs.list import summary
from anchorlab.cli.terminal.output import print_json, print_metrics, print_table, print_text
from anchorlab.errors import SpecError


def diff_(
    first: shared.RunName, second: shared.RunName, /, *, store: shared.ReadStore = None, json: shared.Json = False
) -> None:
    """Show the fields and versions in which two runs differ, and their final metrics side by side.

    Parameters
    ----------
    first
        First digits of a run's address, as `anchorlab runs` lists it.
    second
        First digits of the other run's address.
    """
    from anchorlab.runs import differing, entry_of, side_by_side, text_of

    pair = shared.found_runs(store, first, second)
    if pair[0].address == pair[1].address:
        raise SpecError("second", f"is the same run, {pair[0].address}", "name another one")
    fields = differing(pair[0].spec, pair[1].spec)
    versions = differing(*(dict(run.environments[-1]) for run in pair))
    metrics = side_by_side(*(run.metrics() for run in pair)) if all(run.finished for run in pair) else None
    rows = [summary(entry_of(run)) for run in pair]
    if json:
        ends = [] if metrics is None else metrics.to_dicts()
        print_json({"runs": rows, "fields": fields, "environment": versions, "metrics": ends})
        return
    names = tuple(run.address[:8] for run in pair)
    print_table(("", *names), [(name, *(row[name] for row in rows)) for name in rows[0]])
    for title, found in (("fields that differ", fields), ("versions that differ", versions)):
        if found:
            shown = [(name, *(text_of(value) for value in both)) for name, both in found.items()]
            print_table(("", *names), shown, title=f"\n{title}")
    if not fields:
        print_text("\nthe same specification")
    if metrics is None:
        print_text("\nno metrics to compare: a run is not finished")
        return
    print_text("")
    print_metrics(
        metrics.rename(dict(zip(("first", "second"), names, strict=True))), "metrics at the end, means over members"
    )
