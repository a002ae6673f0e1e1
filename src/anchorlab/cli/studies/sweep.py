"""`anchorlab sweep`."""

import math
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anchorlab.cli.options import shared
from anchorlab.cli.studies.claims import claim_data, print_claims, print_origin
from anchorlab.cli.terminal.output import check_file, number, print_json, print_table, print_text
from anchorlab.progress import shown

if TYPE_CHECKING:
    import polars

    from anchorlab.findings import Table
    from anchorlab.training import Experiment


def sweep(
    file: Path,
    /,
    *,
    seeds: str | None = None,
    store: shared.StoreFolder = None,
    report: Path | None = None,
    csv: Path | None = None,
    json: shared.Flag = False,
    dry_run: shared.DryRun = False,
    where: shared.Place = shared.HERE,
) -> None:
    """Train an experiment at every point of a grid, and show how its metrics vary over the grid.

    Points already in the store are not trained again.

    Parameters
    ----------
    file
        TOML file: a task, changes to its defaults in the tables `model`, `recipe` and `members`, and lists of values in
        the table `grid`.
    seeds
        Seeds of the members in place of the file's: `0:10` for 0 to 9, or a list such as `0,3,5`.
    report
        HTML file for the page; by default it is in the store.
    csv
        File for the final metrics of all points as a table of comma-separated values.
    json
        Print the final metrics of all points as JSON.
    """
    from anchorlab.cli.terminal.forecast import print_forecast
    from anchorlab.report import write_report
    from anchorlab.runs import Store
    from anchorlab.runs.metrics import last_metrics
    from anchorlab.studies import experiments_to_run, findings_directory, run_study
    from anchorlab.studies.toml_file import read_sweep

    check_file(report, "report")
    check_file(csv, "csv")
    on = where.backend()
    study, grid = read_sweep(file, seeds)
    kept = Store(store)
    if dry_run:
        print_forecast(experiments_to_run(study, "quick"), kept, where.workers, where.device, json)
        return
    with shown(not json) as show:
        findings = run_study(study, "quick", kept, where.workers, where.device, show, on=on)
    page = report or findings_directory(kept, study.name, "quick") / "report.html"
    write_report(findings, page)
    points = [dict(zip(grid, point, strict=True)) for point in product(*grid.values())]
    cells = study.experiments_of("quick")
    metrics = [last_metrics(kept.open(cell.cell).metrics()) for cell in cells]
    if csv is not None:
        _table(points, cells, metrics).write_csv(csv)
    if json:
        found = [
            {"values": point, "run": cell.cell.address, "last": last.to_dicts()}
            for point, cell, last in zip(points, cells, metrics, strict=True)
        ]
        results = [claim_data(result) for result in findings.claims]
        print_json({"sweep": study.name, "report": str(page.absolute()), "cells": found, "claims": results})
        return
    _print_points(findings.tables[0].columns, findings.tables[0].rows, study.title, len(grid))
    print_text(_best(findings.tables[0], len(grid)))
    if findings.claims:
        print_text("")
        print_claims([findings])
    print_origin(findings, page)
    if csv is not None:
        print_text(f"table: {csv.absolute()}", wrapped=False)


def _print_points(columns: Sequence[str], rows: Sequence[Sequence[Any]], title: str, quantities: int) -> None:
    """Print the table of a sweep's findings, with the mean, lowest and highest value of each split in one cell."""
    splits = [column.removesuffix(", mean") for column in columns[quantities::3]]
    means = range(quantities, len(columns), 3)
    cells = [
        (*row[:quantities], *(f"{number(row[at])} ({number(row[at + 1])} to {number(row[at + 2])})" for at in means))
        for row in rows
    ]
    print_table((*columns[:quantities], *splits), cells, title=title)


def _best(table: "Table", quantities: int) -> str:
    """Return a line with the point of the best mean on the last split: the lowest loss or error, else the highest."""
    metric, split = table.caption.partition(":")[0], table.columns[-3].removesuffix(", mean")
    sign = -1 if metric in ("loss", "error") else 1
    means = [float(row[-3]) * sign if isinstance(row[-3], int | float) else math.nan for row in table.rows]
    best = max(range(len(means)), key=lambda at: -math.inf if math.isnan(means[at]) else means[at])
    point = ", ".join(
        f"{name} {value}" for name, value in zip(table.columns[:quantities], table.rows[best], strict=False)
    )
    return f"best {split} {metric}: {number(sign * means[best])}, at {point}"


def _table(
    points: Sequence[Mapping[str, Any]], cells: "Sequence[Experiment]", metrics: "Sequence[polars.DataFrame]"
) -> "polars.DataFrame":
    import polars as pl

    def column(value: Any) -> Any:
        return value if isinstance(value, int | float | str) else str(value)

    rows = [
        {**{path: column(value) for path, value in point.items()}, "run": cell.cell.address, **row}
        for point, cell, last in zip(points, cells, metrics, strict=True)
        for row in last.to_dicts()
    ]
    return pl.DataFrame(rows, infer_schema_length=None, strict=False)
