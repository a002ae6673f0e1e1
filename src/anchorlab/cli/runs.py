"""`anchorlab runs`."""

from datetime import datetime
from pathlib import Path

from anchorlab.cli.output import console, print_json, print_table
from anchorlab.errors import StoreError
from anchorlab.runs import Run, Store


def list_(*, store: Path | None = None, json: bool = False) -> None:
    """List all runs of the store.

    Parameters
    ----------
    store
        The folder of runs; by default `runs`, or what $ANCHORLAB_STORE says.
    json
        As JSON, for scripts.
    """
    found = [_summary(run) for run in Store(store).runs()]
    if json:
        print_json(found)
    elif not found:
        console.print("no runs yet; `anchorlab train TASK` makes one")
    else:
        print_table(tuple(found[0]), [tuple(row.values()) for row in found])


def show_(run: str, /, *, store: Path | None = None, json: bool = False) -> None:
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
    found = Store(store).find(run)
    last = []
    if found.finished:
        metrics = found.metrics()
        ending = metrics.filter(metrics["step"] == metrics["step"].max())
        last = ending.group_by("split", "group", "edit", "metric", maintain_order=True).mean().select(
            "split", "group", "edit", "metric", "value").to_dicts()
    if json:
        print_json({**_summary(found), "spec": found.spec, "environments": found.environments, "last": last})
        return
    console.print_json(data={**_summary(found), "spec": dict(found.spec), "environments": found.environments})
    if last:
        print_table(tuple(last[0]), [tuple(row.values()) for row in last], title="last metrics, mean over members")


def check_(*, store: Path | None = None) -> None:
    """Read every file of the runs and name damaged ones.

    Parameters
    ----------
    store
        The folder of runs; by default `runs`, or what $ANCHORLAB_STORE says.
    """
    found = Store(store).runs()
    problems = [problem for run in found for problem in run.problems()]
    if problems:
        raise StoreError("; ".join(problems))
    console.print(f"{len(found)} runs, all files as they were written")


def remove_(run: str, /, *, store: Path | None = None) -> None:
    """Remove a run.

    Parameters
    ----------
    run
        The first digits of its address.
    store
        The folder of runs; by default `runs`, or what $ANCHORLAB_STORE says.
    """
    console.print(f"removed {Store(store).remove(run)}")


def _summary(run: Run) -> dict[str, str | int]:
    try:
        label, members = run.label, len(run.spec.get("members", {}).get("seeds", ()))
    except StoreError:
        label, members = "damaged", 0
    return {
        "run": run.address,
        "label": label,
        "members": members,
        "state": "finished" if run.finished else "unfinished",
        "when": f"{datetime.fromtimestamp(run.modified):%Y-%m-%d %H:%M}",
        "MB": round(run.size / 1e6),
    }
