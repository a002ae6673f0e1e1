"""Curves: the metrics of runs along training, aggregated over members, as the index keeps them."""

import json
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from anchorlab.runs.metrics import MOST_READ, MOST_ROWS, diverged_members, metrics_schema, reading_metrics

if TYPE_CHECKING:
    import polars

_Result = TypeVar("_Result")

_DIGITS = 5
"""Significant digits of a curve: enough for drawing. The exact values are in the run's table of metrics."""


@dataclass(frozen=True)
class Curve:
    """One metric of one split along training: at each step the mean over members, the lowest and the highest.

    Non-finite values are None. Members that stopped before a step do not count at that step.
    """

    split: str
    metric: str
    steps: tuple[int, ...]
    mean: tuple[float | None, ...]
    low: tuple[float | None, ...]
    high: tuple[float | None, ...]


@dataclass(frozen=True)
class Measured:
    """The summary of a run's metrics that the index keeps: all sequences of each split, unedited weights.

    Fields
        ends: the mean over members at each member's last step, by `SPLIT.METRIC`
        curves: every metric along training
    """

    ends: Mapping[str, float]
    curves: tuple[Curve, ...]


def packed(curves: tuple[Curve, ...]) -> bytes:
    """Return curves as zlib-compressed JSON, which browsers can read too."""
    return zlib.compress(json.dumps([vars(one) for one in curves], separators=(",", ":")).encode())


def all_metrics(tables: Mapping[str, Path]) -> "polars.DataFrame":
    """Return several tables of metrics as one, in their order, with the address in a first column `run`.

    Args:
        tables: the path of each run's table by address

    Errors: `ValueError` if a file is no table of metrics, or if there are `MOST_READ` rows or more.
    """
    with reading_metrics():
        found = _rows(tables, MOST_READ).collect()
    if len(found) >= MOST_READ:
        raise ValueError(f"these runs have {MOST_READ} rows of metrics or more")
    return found


def all_diverged(tables: Mapping[str, Path]) -> "polars.DataFrame":
    """Return the members that diverged, from several tables of metrics, with columns run, member, seed, step.

    Files that are not tables of metrics are skipped.
    """
    import polars as pl

    try:
        return _diverged(tables)
    except ValueError:
        return pl.concat([_diverged({}), *_one_by_one(tables, _diverged)])


def _diverged(tables: Mapping[str, Path]) -> "polars.DataFrame":
    with reading_metrics():
        return diverged_members(_rows(tables, MOST_READ), ("run", "member", "seed")).collect()


def measure(tables: Mapping[str, Path]) -> list[tuple[str, Measured]]:
    """Summarize the metrics of runs, as pairs of address and summary; files that are no tables of metrics are skipped.

    Reads all tables at once, which is several times as fast as one by one, unless together they have too many rows.
    """
    try:
        return _measure(tables, MOST_ROWS)
    except ValueError:
        return [found for alone in _one_by_one(tables, partial(_measure, most=MOST_READ)) for found in alone]


def _one_by_one(tables: Mapping[str, Path], read: Callable[[Mapping[str, Path]], _Result]) -> list[_Result]:
    """Return what `read` returns for each table alone; tables that cannot be read are skipped."""
    found = []
    for address, path in tables.items():
        with suppress(ValueError):
            found.append(read({address: path}))
    return found


def _measure(tables: Mapping[str, Path], most: int) -> list[tuple[str, Measured]]:
    """Do the work of `measure`. Errors: `ValueError` if a table is unreadable, or all have `most` rows or more."""
    import polars as pl

    if not (addresses := sorted(tables)):
        return []
    rows = _rows(tables, most)
    count = rows.select(pl.len())
    rows = rows.filter(pl.col("group") == "all", pl.col("edit") == "none").cast({"run": pl.Enum(addresses)})
    series, value = ("run", "split", "metric"), pl.col("value")
    over_members = {"mean": value.mean(), "low": value.min(), "high": value.max()}
    along = rows.group_by(*series, "step").agg(
        pl.when(one.is_finite()).then(one.round_sig_figs(_DIGITS)).alias(name) for name, one in over_members.items()
    )
    curves = along.sort(*series, "step").group_by(*series, maintain_order=True).agg("step", "mean", "low", "high")
    last = rows.sort("step").group_by(*series, "member", maintain_order=True).last()
    ends = last.group_by(*series).agg(value.mean()).sort(*series)
    with reading_metrics():
        found_curves, found_ends, found_count = pl.collect_all([curves, ends, count])
    if found_count.item() >= most:
        raise ValueError(f"these runs have {most} rows of metrics or more")
    ends_of: dict[str, dict[str, float]] = {address: {} for address in addresses}
    for address, split, metric, mean in found_ends.iter_rows():
        ends_of[address][f"{split}.{metric}"] = mean
    curves_of: dict[str, list[Curve]] = {address: [] for address in addresses}
    for address, split, metric, *numbers in found_curves.iter_rows():
        curves_of[address].append(Curve(split, metric, *map(tuple, numbers)))
    return [(address, Measured(ends_of[address], tuple(curves_of[address]))) for address in addresses]


def _rows(tables: Mapping[str, Path], most: int) -> "polars.LazyFrame":
    """Return the rows of all tables, with the address in a first column `run`; at most `most` rows."""
    import polars as pl

    if not (paths := list(tables.values())):
        return pl.LazyFrame(schema={"run": pl.String(), **metrics_schema()})
    rows = pl.scan_parquet(paths, include_file_paths="path", schema=metrics_schema(), n_rows=most, glob=False)
    # Slicing the path is faster than a join: every address has 20 digits, followed by the same file name.
    run = pl.col("path").str.head(-len(f"/{paths[0].name}")).str.tail(20)
    return rows.select(run.alias("run"), *metrics_schema())
