"""The table of metrics of a run: one row per member, step, split, group, edit and metric."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    import polars

MOST_ROWS = 20_000_000
"""The limit for the rows of tables that are read together; a row takes about 90 bytes."""

MOST_READ = 200_000_000
"""Tables of one run or of several with this number of rows or more are refused: they would take about 18 GB."""

_KEYS = ("member", "seed", "step", "split", "group", "edit", "metric")


def metrics_schema() -> "polars.Schema":
    """Return the columns and types of the table of metrics.

    `member` is the member's index in the run, from 0; `seed` is its seed; `step` counts optimiser steps; `group` is
    `all` for all sequences of a split; `edit` is `none` for unedited weights.
    """
    import polars as pl

    return pl.Schema(
        {
            "member": pl.Int32(),
            "seed": pl.Int64(),
            "step": pl.Int64(),
            "split": pl.String(),
            "group": pl.String(),
            "edit": pl.String(),
            "metric": pl.String(),
            "value": pl.Float64(),
        }
    )


def metrics_frame(rows: Iterable[Sequence[Any]]) -> "polars.DataFrame":
    """Build a table of metrics from rows (member, seed, step, split, group, edit, metric, value)."""
    import polars as pl

    return pl.DataFrame(list(rows), schema=metrics_schema(), orient="row")


def metrics_bytes(frame: "polars.DataFrame") -> bytes:
    """Return a table of metrics as a parquet file. Rows are sorted, so their order does not change the bytes.

    Errors: `ValueError` for columns or types other than `metrics_schema`, and for two rows with the same key.
    """
    if frame.schema != metrics_schema():
        raise ValueError(f"a table of metrics has the columns {metrics_schema()}, got {frame.schema}")
    if frame.select(_KEYS).is_duplicated().any():
        first = frame.filter(frame.select(_KEYS).is_duplicated()).row(0, named=True)
        raise ValueError(f"two rows of metrics have the same key: {first}")
    buffer = BytesIO()
    # Set every option that affects the bytes, so that new defaults of the library cannot change them.
    frame.sort(_KEYS).rechunk().write_parquet(
        buffer, compression="zstd", compression_level=3, statistics=True, row_group_size=2**18, data_page_size=2**20
    )
    return buffer.getvalue()


@contextmanager
def reading_metrics() -> Iterator[None]:
    """Turn polars' errors inside `with`, for a file that is no table or has been removed, into `ValueError`."""
    import polars as pl

    try:
        yield
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, FileNotFoundError) as error:
        raise ValueError(f"is no table of metrics ({type(error).__name__})") from None


def scan_metrics(path: "Path") -> "polars.LazyFrame":
    """Return a lazy table of metrics, cut to `MOST_READ` rows.

    Errors: `ValueError` if the file is no table, or has other columns.
    """
    import polars as pl

    with reading_metrics():
        found = pl.scan_parquet(path, glob=False, n_rows=MOST_READ)
        schema = found.collect_schema()
    if schema != metrics_schema():
        raise ValueError("has other columns than a table of metrics")
    return found


def read_metrics(path: "Path") -> "polars.DataFrame":
    """Return a table of metrics. Errors: as `scan_metrics`, and `ValueError` if it has `MOST_READ` rows or more."""
    with reading_metrics():
        found = scan_metrics(path).collect()
    if len(found) == MOST_READ:
        raise ValueError(f"has {MOST_READ} rows or more")
    return found


def last_metrics(metrics: "polars.DataFrame") -> "polars.DataFrame":
    """Return every metric at each member's own last step: mean, lowest and highest over members."""
    import polars as pl

    measured = ("split", "group", "edit", "metric")
    ends = metrics.sort("step").group_by("member", *measured, maintain_order=True).last()
    value = pl.col("value")
    return ends.group_by(*measured, maintain_order=True).agg(
        value.mean().alias("mean"), value.min().alias("lowest"), value.max().alias("highest")
    )


def diverged_members(metrics: "polars.DataFrame") -> "polars.DataFrame":
    """Return the members with a non-finite metric and the first such step of each, as columns member, step."""
    import polars as pl

    lost = metrics.filter(~pl.col("value").is_finite())
    return lost.group_by("member").agg(pl.col("step").min()).sort("member")


def select_metric(
    metrics: "polars.DataFrame", metric: str, split: str = "test", group: str = "all", edit: str = "none"
) -> "polars.DataFrame":
    """Return one metric of a table, as columns member, step, value, sorted by member and step.

    Errors: `SpecError` that names the argument and the nearest known name.
    """
    from anchorlab.spec import check_known

    for column, name in {"metric": metric, "split": split, "group": group, "edit": edit}.items():
        known = metrics[column].unique()
        check_known(column, name, known, column)
        metrics = metrics.filter(metrics[column] == name)
    return metrics.select("member", "step", "value").sort("member", "step")
