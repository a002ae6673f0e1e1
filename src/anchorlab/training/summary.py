"""The last numbers of a run, over its members."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars


def last_metrics(metrics: "polars.DataFrame") -> "polars.DataFrame":
    """Every metric at each member's own last step: mean, lowest and highest over members."""
    import polars as pl

    measured = ("split", "group", "edit", "metric")
    ends = metrics.sort("step").group_by("member", *measured, maintain_order=True).last()
    value = pl.col("value")
    return ends.group_by(*measured, maintain_order=True).agg(
        value.mean().alias("mean"), value.min().alias("lowest"), value.max().alias("highest")
    )
