"""`anchorlab runs`."""

import sys
from pathlib import Path

from anchorlab.cli.complete import RunName
from anchorlab.cli.output import Flag, Json, agreed, counted, print_json, print_metrics, print_table, print_text
from anchorlab.cli.runs_list import summary
from anchorlab.cli.runs_matching import size_text
from anchorlab.errors import SpecError, StoreError


def show_(run: RunName, /, *, store: Path | None = None, json: Json = False) -> None:
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

    from anchorlab.runs import Store, entry_of, flat, text_of
    from anchorlab.runs.metrics import last_metrics

    found = Store(store).find(run)
    last = last_metrics(found.metrics()) if found.finished else None
    spec, row = found.spec, summary(entry_of(found))
    if json:
        ending = [] if last is None else last.to_dicts()
        print_json({**row, "spec": spec, "environments": found.environments, "last": ending})
        return
    print_table(("", ""), list(row.items()))
    for part in ("task", "model", "recipe", "members"):
        print_table(
            ("", ""),
            [(name, text_of(value)) for name, value in flat({part: spec[part]} if spec.get(part) else {})],
            title=f"\n{part}",
        )
    for environment in found.environments:
        print_table(("", ""), [(name, text_of(value)) for name, value in flat(environment)], title="\nmade with")
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

    kept = Store(store)
    found, problems = kept.runs(), kept.problems()
    unfinished = sum(not run.finished for run in found)
    if json:
        print_json({"runs": len(found), "unfinished": unfinished, "problems": problems})
        return 2 if problems else 0
    if problems:
        raise StoreError("; ".join(problems))
    rest = f", {unfinished} of them unfinished" if unfinished else ""
    print_text(f"{counted(len(found), 'run')}, all files as they were written{rest}")
    return 0


def remove_(run: RunName, /, *, store: Path | None = None, yes: Flag = False) -> None:
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
    from anchorlab.runs import Store, entry_of

    kept = Store(store)
    found = kept.find(run)
    if not yes:
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise SpecError("yes", f"nobody can be asked whether to remove {found.address}", "add --yes to remove it")
        entry = entry_of(found)
        what = f"{found.address} ({entry.name}, {counted(entry.members, 'member')}, {size_text(entry.size)})"
        if not agreed(f"remove {what}? [y/N] "):
            print_text("nothing was removed")
            return
    print_text(f"removed {kept.remove(found.address)}")
