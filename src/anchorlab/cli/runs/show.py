"""`anchorlab runs show`."""

from anchorlab.cli.options import shared
from anchorlab.cli.runs.list import summary
from anchorlab.cli.terminal.output import print_json, print_metrics, print_table, print_text


def show_(run: shared.AnyRun, /, *, store: shared.ReadStore = None, json: shared.Json = False) -> None:
    """Show a run's specification and its final metrics."""
    from anchorlab.runs import entry_of, flat, text_of
    from anchorlab.runs.metrics import last_metrics

    (found,) = shared.found_runs(store, run)
    last = last_metrics(found.metrics()) if found.finished else None
    spec, row = found.spec, summary(entry_of(found))
    if json:
        ending = [] if last is None else last.to_dicts()
        print_json({**row, "spec": spec, "environments": found.environments, "last": ending})
        return
    print_table(("", ""), list(row.items()))
    for part in ("task", "model", "recipe", "members"):
        fields = flat({part: spec[part]} if spec.get(part) else {})
        print_table(("", ""), [(name, text_of(value)) for name, value in fields], title=f"\n{part}")
    for environment in found.environments:
        print_table(("", ""), [(name, text_of(value)) for name, value in flat(environment)], title="\nmade with")
    if last is not None:
        print_text("")
        print_metrics(last, "last metrics over members")
