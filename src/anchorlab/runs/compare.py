"""Compare two runs: the fields in which they differ, and their final metrics."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from anchorlab.runs.entry import flat

if TYPE_CHECKING:
    import polars

MISSING = "—"
"""Stands for the value of a field that one of the two specifications lacks."""


def differing(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the fields in which two specifications differ, by dotted path, with both values.

    >>> differing({"model": {"layers": 1, "heads": 2}}, {"model": {"layers": 3, "heads": 2}})
    {'model.layers': (1, 3)}
    """
    one, other = dict(flat(first)), dict(flat(second))
    pairs = {path: (one.get(path, MISSING), other.get(path, MISSING)) for path in sorted({**one, **other})}
    # `True == 1` in Python, but `true` and 1 are different values in a specification.
    return {path: (a, b) for path, (a, b) in pairs.items() if a != b or isinstance(a, bool) != isinstance(b, bool)}


def side_by_side(first: "polars.DataFrame", second: "polars.DataFrame") -> "polars.DataFrame":
    """Return the final metrics of two runs: each measured quantity with both means and their difference.

    Args:
        first, second: tables of metrics

    Returns: columns split, group, edit, metric, first, second (means over members) and difference (second - first);
    None if a run did not measure the quantity.
    """
    import polars as pl

    from anchorlab.runs.metrics import last_metrics

    keys = ["split", "group", "edit", "metric"]
    one, other = (last_metrics(table).select(*keys, "mean") for table in (first, second))
    both = one.rename({"mean": "first"}).join(other.rename({"mean": "second"}), on=keys, how="full", coalesce=True)
    return both.with_columns((pl.col("second") - pl.col("first")).alias("difference")).sort(keys)
