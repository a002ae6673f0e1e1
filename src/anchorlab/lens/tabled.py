"""Measurements whose values are rows of a table: how they print and what a notebook shows of them."""

from abc import abstractmethod
from typing import TYPE_CHECKING

from anchorlab.drawable import Drawable
from anchorlab.errors import SpecError

if TYPE_CHECKING:
    import polars


class Tabled(Drawable):
    """A measurement with a table. A dataclass needs `repr=False`, so that tensors are not printed in full."""

    @property
    @abstractmethod
    def table(self) -> "polars.DataFrame":
        """The values, a row for each place at which something was measured."""

    def __repr__(self) -> str:
        try:
            rows = self.table
        except SpecError as error:  # too large for a table
            return f"{type(self).__name__} without a table: {error}"
        count = f"{rows.height:,} row{'s' * (rows.height != 1)}"
        return f"{type(self).__name__} with {count} in .table: {', '.join(rows.columns)}"
