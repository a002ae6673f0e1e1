"""`anchorlab truncate`."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from anchorlab.cli.output import Json, print_json, print_table, print_text, progress
from anchorlab.errors import SpecError

if TYPE_CHECKING:
    import polars

    from anchorlab.findings import MapFigure

_MOST = 1001


def truncate(
    run: str,
    /,
    *,
    weights: Annotated[list[str] | None, Parameter(negative="")] = None,
    rho: str = "0:1:0.05",
    metric: str = "loss",
    split: str | None = None,
    store: Path | None = None,
    n: Annotated[int, Parameter(name=("--n", "-n"))] = 1000,
    step: int | None = None,
    figure: Path | None = None,
    json: Json = False,
) -> None:
    """Cut the matrices of a finished run to lower rank, one at a time, and find the best cut of each.

    Measurements are kept in the store, so that a search that was stopped can continue.

    Parameters
    ----------
    run
        First digits of the run's address, as `anchorlab runs` lists it.
    weights
        Matrix, pattern such as `blocks.1.mlp.*`, or product `A @ B`; repeat it for several. By default `blocks.*`.
    rho
        Fractions of the rank to keep: `0:1:0.05` from 0 to 1 in steps, or a list such as `0,0.1,0.5`.
    metric
        Metric to optimise: the lowest loss, or the highest value of any other metric.
    split
        Split to measure on; by default the task's last.
    store
        Folder of stored runs and findings; by default $ANCHORLAB_STORE, or `runs`.
    n
        Number of sequences to measure on.
    step
        Training step of the checkpoint; by default the last.
    figure
        Also draw a heat map of matrices and fractions to this PNG, PDF or SVG file.
    json
        Print every number as JSON.
    """
    fractions = _fractions(rho)
    if n < 1:
        raise SpecError("n", f"cannot measure on {n} sequences", "give 1 or more")

    from anchorlab.engine import Status
    from anchorlab.lens import best_truncations, truncations
    from anchorlab.runs import Store
    from anchorlab.training import TrainedRun

    began, place = time.monotonic(), Store(store)
    trained = TrainedRun(place.find(run))
    with progress(quiet=json) as show:
        table = truncations(
            trained,
            weights or ["blocks.*"],
            fractions,
            split=split,
            size=n,
            step=step,
            keep=place.root / "truncations" / trained.run.address,
            progress=lambda done, total: show(Status(total, done, "cutting")),
        )
    found = best_truncations(table, metric)
    if figure is not None:
        from anchorlab.findings import provenance
        from anchorlab.report import save

        save(
            _heat_map(table, metric, trained.run.label), provenance("own", [trained], time.monotonic() - began), figure
        )
    if json:
        print_json({"best": found.to_dicts(), "measured": table.to_dicts()})
        return
    rows = [
        (row["weight"], f"{row['fraction']:g}", row["rank"], row["value"], row["full"], row["change"])
        for row in found.iter_rows(named=True)
    ]
    measured_on = trained.experiment.task.splits[-1] if split is None else split
    print_table(
        ("matrix", "best ρ", "rank", metric, "full model", "change"),
        rows,
        title=f"{trained.run.label}: {metric} on {measured_on}",
    )
    print_text(f"over {n} sequences; mean over members; ρ: fraction of the rank that is kept, 0 removes the matrix")
    if figure is not None:
        print_text(f"figure: {figure}", wrapped=False)


def _fractions(text: str) -> list[float]:
    """Parse `0:1:0.25` or `0,0.25,0.5`. Errors: `SpecError` at `rho`."""
    try:
        if ":" not in text:
            return [float(part) for part in text.split(",")]
        start, end, step = (float(part) for part in text.split(":"))
    except ValueError:
        raise SpecError("rho", f"cannot read {text!r}", "write 0:1:0.05, or a list such as 0,0.1,0.5") from None
    if not (step > 0 and start <= end and (end - start) / step < _MOST):
        raise SpecError("rho", f"{text!r} is not a range", "write start:end:step, such as 0:1:0.05")
    return [round(start + index * step, 10) for index in range(int((end - start) / step + 1e-9) + 1)]


def _heat_map(table: "polars.DataFrame", metric: str, label: str) -> "MapFigure":
    import polars as pl

    from anchorlab.findings import Map, MapFigure

    means = (
        table.filter((pl.col("metric") == metric) & (pl.col("group") == "all"))
        .group_by("weight", "fraction", maintain_order=True)
        .agg(pl.col("value").mean())
    )
    names, fractions = (means[column].unique(maintain_order=True).to_list() for column in ("weight", "fraction"))
    values = means["value"].reshape((len(names), len(fractions))).to_list()
    ticks = tuple(f"{fraction:g}" for fraction in fractions)
    return MapFigure(
        title=f"{label}: {metric} by matrix and fraction of its rank",
        caption="Each matrix alone is cut to a fraction of its rank; mean over members.",
        maps=((Map("", tuple(map(tuple, values)), tuple(names), ticks),),),
        x_label="fraction of the rank that is kept, ρ",
        y_label="",
        value_label=metric,
        value_range=(None, None),
    )
