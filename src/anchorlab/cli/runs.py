"""`anchorlab runs`."""

import sys
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anchorlab.cli.output import Flag, Json, counted, print_json, print_metrics, print_table, print_text
from anchorlab.errors import SpecError, StoreError

if TYPE_CHECKING:
    from anchorlab.runs import Run


def list_(*, store: Path | None = None, json: Json = False) -> None:
    """List the runs in the store.

    Parameters
    ----------
    store
        Folder of stored runs and findings; by default $ANCHORLAB_STORE, or `runs`.
    json
        Print JSON.
    """
    from anchorlab.runs import Store

    found = [_summary(run) for run in Store(store).runs()]
    if json:
        print_json(found)
    elif not found:
        print_text("no runs; `anchorlab train TASK` makes one")
    else:
        print_table(tuple(found[0]), [tuple(row.values()) for row in found])


def show_(run: str, /, *, store: Path | None = None, json: Json = False) -> None:
    """Show a run's specification and its last metrics.

    Parameters
    ----------
    run
        First digits of the run's address, as `anchorlab runs` lists it.
    store
        Folder of stored runs and findings; by default $ANCHORLAB_STORE, or `runs`.
    json
        Print JSON.
    """

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
    """Read every file of the runs and name the damaged ones; exit with 2 if there are any.

    Parameters
    ----------
    store
        Folder of stored runs and findings; by default $ANCHORLAB_STORE, or `runs`.
    json
        Print JSON.
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
    rest = f", {unfinished} of them unfinished" if unfinished else ""
    print_text(f"{counted(len(found), 'run')}, all files as they were written{rest}")
    return 0


def remove_(run: str, /, *, store: Path | None = None, yes: Flag = False) -> None:
    """Remove a run after asking on the terminal; without a terminal, only with `--yes`.

    Parameters
    ----------
    run
        First digits of the run's address, as `anchorlab runs` lists it.
    store
        Folder of stored runs and findings; by default $ANCHORLAB_STORE, or `runs`.
    yes
        Remove it without asking.
    """
    from anchorlab.runs import Store

    kept = Store(store)
    found = kept.find(run)
    if not yes:
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise SpecError("yes", f"nobody can be asked whether to remove {found.address}", "add --yes to remove it")
        summary = _summary(found)
        members = counted(int(summary["members"]), "member")
        what = f"{found.address} ({summary['label']}, {members}, {summary['MB']} MB)"
        if not _agreed(f"remove {what}? [y/N] "):
            print_text("nothing was removed")
            return
    print_text(f"removed {kept.remove(found.address)}")


def _agreed(question: str) -> bool:
    """Ask a question on the terminal; anything but `y` or `yes` means no."""
    try:
        return input(question).strip().lower() in ("y", "yes")
    except EOFError:
        return False


def _summary(run: "Run") -> dict[str, str | int | float]:
    """Return a row of the list of runs."""
    state = "finished" if run.finished else "unfinished"
    try:
        label, members = run.label, len(run.spec.get("members", {}).get("seeds", ()))
        label = label if run.spec.get("trained", True) else f"{label}, untrained"
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
    """Yield nested fields with their paths, as options write them."""
    for name, value in data.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{at}{name}.")
        elif isinstance(value, list):
            yield f"{at}{name}", ", ".join(map(str, value))
        else:
            yield f"{at}{name}", "none" if value is None else str(value)
