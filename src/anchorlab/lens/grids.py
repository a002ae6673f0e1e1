"""Measurements as tables: a row for each cell of a grid such as `[member site place ...]`, and their heat maps."""

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

from jaxtyping import Float, Shaped
from torch import Tensor

from anchorlab.drawable import Drawable
from anchorlab.errors import SpecError

if TYPE_CHECKING:
    import polars

_OWN = ("head", "width", "head_width", "hidden")  # axes whose order differs from member to member


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


def heat_map(
    values: Float[Tensor, "member site *place"], over: Sequence[str], member: int | None, example: str
) -> Float[Tensor, "row place"]:
    """Return the map of a grid: the values of one member, or the mean over all. The grid's last axis forms the columns.

    A site has a row for each place along the grid's other axes.

    Errors: `SpecError` for a mean over heads or coordinates of several members; it recommends the call `example`.
    """
    count, own = len(values), [axis for axis in over if axis in _OWN]
    if member is None and count > 1 and own:
        problem = f"{own[0]} 0 of one member has nothing to do with {own[0]} 0 of another"
        raise SpecError("member", problem, f"choose one from 0 to {count - 1}, as in {example}")
    if member is not None and not 0 <= member < count:
        raise SpecError("member", f"there is no member {member}", f"choose one from 0 to {count - 1}")
    shown = values.mean(dim=0) if member is None else values[member]
    return shown.reshape(-1, shown.shape[-1] if over else 1)


def grid_table(
    axes: Mapping[str, Sequence[object]], values: Mapping[str, Shaped[Tensor, "..."]], layers: bool = False
) -> "polars.DataFrame":
    """Return one row per cell of a grid, with its label along each axis and its values.

    Values may lack trailing axes on which they do not depend, or have size 1 along such axes. With `layers`, a column
    `layer` follows the axis `site`.
    """
    import polars

    columns: dict[str, list[Any]] = dict(zip(axes, map(list, zip(*product(*axes.values()), strict=True)), strict=True))
    sizes = [len(labels) for labels in axes.values()]
    for name, value in values.items():
        missing = len(sizes) - value.ndim
        columns[name] = value.reshape(*value.shape, *(1,) * missing).expand(sizes).flatten().tolist()
    table = polars.DataFrame(columns)
    if layers:
        layer = dict(zip(axes["site"], layers_of([str(site) for site in axes["site"]]), strict=True))
        column = polars.Series("layer", [layer[site] for site in columns["site"]])
        table.insert_column(table.columns.index("site") + 1, column)
    return table


def place_axes(
    sites: Sequence[str], over: Sequence[str], values: Float[Tensor, "member site *place"]
) -> dict[str, Sequence[object]]:
    """Return the labels of values along their axes, for `grid_table`."""
    members, _, *sizes = values.shape
    places = {axis: range(size) for axis, size in zip(over, sizes, strict=True)}
    return {"member": range(members), "site": sites, **places}


def layers_of(sites: Sequence[str]) -> list[int]:
    """Return the layer of each site: the first number in its name, or its place among the sites."""
    numbers = [re.search(r"\d+", site) for site in sites]
    return [int(number.group()) if number else place for place, number in enumerate(numbers)]
