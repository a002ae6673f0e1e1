"""`anchorlab runs`."""

import sys
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anchorlab.cli.output import Flag, Json, print_json, print_table, print_text
from anchorlab.cli.summary import members_text
from anchorlab.errors import StoreError

if TYPE_CHECKING:
    from anchorlab.runs import Run


def list_(*, store: Path | None = None, json: Json = False) -> None:
    """List all runs of the store.

    Parameters
    ----------
    store
        The folder of runs; by default `runs`, or what $ANCHORLAB_STORE says.
    json
        As JSON, for scripts.
    """
    from anchorlab.runs import Store

    found = [_summary(run) for run in Store(store).runs()]
    if json:
        print_json(found)
    elif not found:
        print_text("no runs yet; `anchorlab train TASK` makes one")
    else:
        print_table(tuple(found[0]), [tuple(row.values()) for row in found])


def show_(run: str, /, *, store: Path | None = None, json: Json = False) -> None:
    """Show what a run is, and its last metrics.

    Parameters
    ----------
    run
        The first digits of its address.
    store
        The folder of runs; by default `runs`, or what $ANCHORLAB_STORE says.
    json
        As JSON, for scripts.
    """
    from anchorlab.cli.summary import print_metrics
    from anchorlab.runs import Store
    from anchorlab.runs.metrics import last_metrics

    found = Store(store).find(run)
    last = last_metrics(found.metrics()) if found.finished else None
    spec, summary = found.spec, _summary(found)
    if json:
        ending = [] if last is None else last.to_dicts()
        print_json({**summary, "spec": spec, "environments": found.environments, "last": ending})
        return
    print_table(("", ""), list(summary.items()))
    for part in ("task", "model", "recipe", "members"):
        print_table(("", ""), list(_flat(spec.get(part, {}), f"{part}.")), title=f"\n{part}")
    for environment in found.environments:
        print_table(("", ""), list(_flat(environment)), title="\nmade with")
    if last is not None:
        print_text("")
        print_metrics(last, "last metrics over members")


def check_(*, store: Path | None = None, json: Json = False) -> int:
    """Read every file of the runs and name damaged ones; exit code 2 where there are any.

    Parameters
    ----------
    store
        The folder of runs; by default `runs`, or what $ANCHORLAB_STORE says.
    json
        As JSON, for scripts.
    """
    from anchorlab.runs import Store

    found = Store(store).runs()
    problems = [problem for run in found for problem in run.problems()]
    unfinished = sum(not run.finished for run in found)
    if json:
        print_json({"runs": len(found), "unfinished": unfinished, "problems": problems})
        return 2 if problems else 0
    if problems:
        raise StoreError("; ".join(problems))
    told = f", {unfinished} of them unfinished" if unfinished else ""
    print_text(f"{len(found)} run{'' if len(found) == 1 else 's'}, all files as they were written{told}")
    return 0


def remove_(run: str, /, *, store: Path | None = None, yes: Flag = False) -> None:
    """Remove a run; on a terminal it asks first.

    Parameters
    ----------
    run
        The first digits of its address.
    store
        The folder of runs; by default `runs`, or what $ANCHORLAB_STORE says.
    yes
        Without asking.
    """
    from anchorlab.runs import Store

    kept = Store(store)
    found = kept.find(run)
    if not yes and sys.stdin.isatty() and sys.stdout.isatty():
        told = _summary(found)
        what = f"{found.address} ({told['label']}, {members_text(int(told['members']))}, {told['MB']} MB)"
        if not _agreed(f"remove {what}? [y/N] "):
            print_text("nothing was removed")
            return
    print_text(f"removed {kept.remove(found.address)}")


def _agreed(question: str) -> bool:
    try:
        return input(question).strip().lower() in ("y", "yes")
    except EOFError:
        return False


def _summary(run: "Run") -> dict[str, str | int | float]:
    state = "finished" if run.finished else "unfinished"
    try:
        label, members = run.label, len(run.spec.get("members", {}).get("seeds", ()))
    except StoreError:
        label, members, state = "", 0, "damaged"
    return {
        "run": run.address,
        "label": label,
        "members": members,
        "state": state,
        "when": f"{datetime.fromtimestamp(run.modified):%Y-%m-%d %H:%M}",
        "MB": round(run.size / 1e6, 1),
    }


def _flat(data: Mapping[str, Any], at: str = "") -> Iterator[tuple[str, str]]:
    """Nested fields by their paths, as options write them."""
    for name, value in data.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{at}{name}.")
        elif isinstance(value, list):
            yield f"{at}{name}", ", ".join(map(str, value))
        else:
            yield f"{at}{name}", "none" if value is None else str(value)
