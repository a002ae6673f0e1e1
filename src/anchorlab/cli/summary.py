"""The last numbers of a run, over its members."""

import math
from typing import TYPE_CHECKING, Any

from anchorlab.cli.output import print_table

if TYPE_CHECKING:
    import polars


def print_metrics(last: "polars.DataFrame", title: str) -> None:
    """The table of `last_metrics`, without columns that say nothing."""
    silent = {"group": "all", "edit": "none"}
    shown = last.drop([name for name, word in silent.items() if set(last[name]) == {word}])
    print_table(shown.columns, shown.rows(), title=title)


def members_text(count: int) -> str:
    """A number of members in words."""
    return f"{count} member{'' if count == 1 else 's'}"


def diverged_seeds(metrics: "polars.DataFrame") -> list[int]:
    """The seeds of members of which some measured number is not finite."""
    import polars as pl

    return sorted(set(metrics.filter(~pl.col("value").is_finite())["seed"]))


def finite_or_none(value: Any) -> Any:
    """The value, or None in place of a number that JSON does not have."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
