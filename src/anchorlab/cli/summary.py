"""The last numbers of a run, over its members."""

from typing import TYPE_CHECKING

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
