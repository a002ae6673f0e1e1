"""`anchorlab runs check`."""

from anchorlab.cli.options import shared
from anchorlab.cli.terminal.output import counted, hand_out
from anchorlab.errors import StoreError


def check_(*, store: shared.ReadStore = None, json: shared.Json = False) -> int:
    """Read every file of the runs and name the damaged ones; exit with 2 if there are any."""
    kept = shared.read_store(store)
    found, problems = kept.runs(), kept.problems()
    unfinished = sum(not run.finished for run in found)
    if problems and not json:
        raise StoreError("; ".join(problems))
    data = {"runs": len(found), "unfinished": unfinished, "problems": problems}
    rest = f", {unfinished} of them unfinished" if unfinished else ""
    hand_out(json, lambda: data, [f"{counted(len(found), 'run')}, all files as they were written{rest}"])
    return 2 if problems else 0
