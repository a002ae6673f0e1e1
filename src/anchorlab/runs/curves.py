"""Read the tables of metrics of many runs at once, and sum up each."""

import json
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anchorlab.runs.entry import ODD
from anchorlab.runs.metrics import MOST_READ, MOST_ROWS, metrics_schema, reading_metrics
from anchorlab.runs.run import Run

if TYPE_CHECKING:
    import polars

_Summary = Callable[["polars.LazyFrame"], "polars.LazyFrame"]


def intact_tables(root: Path, addresses: Iterable[str]) -> dict[str, Path]:
    """Return the path of each run's table of metrics by address; damaged tables are left out."""
    found = {}
    for address in addresses:
        with suppress(*ODD):
            found[address] = (run := Run(root / address)).checked(run.metrics_path)
    return found


def all_metrics(tables: Mapping[str, Path]) -> "polars.DataFrame":
    """Return several tables of metrics as one, in their order, with the address in a first column `run`.

    Args:
        tables: the path of each run's table by address

    Errors: `ValueError` if a file is no table of metrics, or if there are `MOST_READ` rows or more.
    """
    return _together(tables, lambda rows: rows, MOST_READ)


def ends_of(tables: Mapping[str, Path]) -> dict[str, dict[str, float]]:
    """Return each run's metrics at the end by address and `SPLIT.METRIC`: means over members, each at its last step.

    They are over all sequences of a split, with unedited weights. Files that are not tables of metrics are skipped.
    """

    def last(rows: "polars.LazyFrame") -> "polars.LazyFrame":
        import polars as pl

        series, value = ("run", "split", "metric"), pl.col("value")
        ends = _of_all(rows).group_by(*series, "member").agg(value.get(pl.col("step").arg_max()))
        return ends.sort("member").group_by(*series).agg(value.mean())  # the order of a sum decides its last bit

    found: dict[str, dict[str, float]] = {}
    for read, frame in _summed_up(tables, last):
        found |= {address: {} for address in read}
        for address, split, metric, mean in frame.iter_rows():
            found[address][f"{split}.{metric}"] = mean
    return found


def packed_curves(tables: Mapping[str, Path], begun: "Mapping[str, polars.DataFrame]") -> dict[str, bytes]:
    """Return each run's metrics along training by address, as zlib-compressed JSON, which browsers can read too.

    `tables` has the tables of finished runs, `begun` the metrics of unfinished ones.

    Numbers have five significant digits, enough for drawing.

    The JSON is a list of one object for each split and metric: `split`, `metric`, `steps` and, at each step, `mean`,
    `low` and `high` over members; null for a value that is not finite. Members that stopped before a step are left out.
    """

    import polars as pl

    def along(rows: "polars.LazyFrame") -> "polars.LazyFrame":
        series, value = ("run", "split", "metric"), pl.col("value")
        over_members = {"mean": value.mean(), "low": value.min(), "high": value.max()}
        finite = {name: pl.when(one.is_finite()).then(one.round_sig_figs(5)) for name, one in over_members.items()}
        steps = _of_all(rows).group_by(*series, pl.col("step").alias("steps")).agg(**finite).sort(*series, "steps")
        return steps.group_by(*series, maintain_order=True).agg("steps", *finite)

    so_far = (along(rows.lazy().with_columns(run=pl.lit(one))).collect() for one, rows in begun.items())
    curves: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for frame in chain((frame for _, frame in _summed_up(tables, along)), so_far):
        for row in frame.iter_rows(named=True):
            curves[row.pop("run")].append(row)
    return {run: zlib.compress(json.dumps(rows, separators=(",", ":")).encode()) for run, rows in curves.items()}


def _summed_up(tables: Mapping[str, Path], summary: _Summary) -> "Iterator[tuple[Iterable[str], polars.DataFrame]]":
    """Yield addresses with the summary of their tables, read together, which is faster, else one by one if readable."""
    with suppress(ValueError):
        yield tables, _together(tables, summary, MOST_ROWS)
        return
    for address, path in tables.items():
        with suppress(ValueError):
            yield (address,), _together({address: path}, summary, MOST_READ)


def _together(tables: Mapping[str, Path], summary: _Summary, most: int) -> "polars.DataFrame":
    """Return the summary of all tables, with a column `run`. Errors: `ValueError` for bad tables or `most` rows."""
    import polars as pl

    rows = pl.LazyFrame(schema={"run": pl.String(), **metrics_schema()})
    if paths := list(tables.values()):
        read = pl.scan_parquet(paths, include_file_paths="path", schema=metrics_schema(), n_rows=most, glob=False)
        # Slicing the path is faster than a join: every address has 20 digits, followed by the same file name.
        run = pl.col("path").str.head(-len(f"/{paths[0].name}")).str.tail(20)
        rows = read.select(run.alias("run"), *metrics_schema())
    with reading_metrics():
        found, count = pl.collect_all([summary(rows), rows.select(pl.len())])
    if count.item() >= most:
        raise ValueError(f"these runs have {most} rows of metrics or more")
    return found


def _of_all(rows: "polars.LazyFrame") -> "polars.LazyFrame":
    import polars as pl

    return rows.filter(pl.col("group") == "all", pl.col("edit") == "none")
