"""Measurements whose values are rows of a table: how they print and what a notebook shows of them."""

from abc import abstractmethod
from typing import TYPE_CHECKING

from anchorlab.drawable import Drawable

if TYPE_CHECKING:
    import polars


class Tabled(Drawable):
    """A measurement with a table. A dataclass needs `repr=False`, so that tensors are not printed in full."""

    @property
    @abstractmethod
    def table(self) -> "polars.DataFrame":
        """The values, a row for each place at which something was measured."""

    def __repr__(self) -> str:
        rows = self.table
        return f"{type(self).__name__} with {rows.height:,} rows in .table: {', '.join(rows.columns)}"
