"""The grid of a sweep, `[member site place ...]`, as a heat map and as columns of a table."""

import re
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.errors import SpecError

_OWN = ("head", "width", "head_width", "hidden")  # axes whose order differs from member to member


def heat_map(
    values: Float[Tensor, "member site *place"], over: Sequence[str], member: int | None, example: str
) -> Float[Tensor, "row place"]:
    """Return the values of one member, or the mean over all, with the grid's last axis in columns.

    The rows are the sites, each with the places of the grid's other axes. `example` is the call that the error about a
    mean over heads recommends.

    Errors: `SpecError` for an unknown member, and for a mean over heads, widths or neurons of several members.
    """
    count, own = len(values), [axis for axis in over if axis in _OWN]
    if member is None and count > 1 and own:
        problem = f"{own[0]} 0 of one member has nothing to do with {own[0]} 0 of another"
        raise SpecError("member", problem, f"choose one from 0 to {count - 1}, as in {example}")
    if member is not None and not 0 <= member < count:
        raise SpecError("member", f"there is no member {member}", f"choose one from 0 to {count - 1}")
    shown = values.mean(dim=0) if member is None else values[member]
    return shown.reshape(-1, shown.shape[-1] if over else 1)


def place_columns(sites: Sequence[str], over: Sequence[str], shape: Sequence[int]) -> dict[str, list[object]]:
    """Return the columns member, site, layer and one for each axis in `over`, for values `[member site ...]` flattened.

    The layer is as in `layers_of`.
    """
    axes = ("member", "site", *over)
    grid = torch.cartesian_prod(*(torch.arange(size) for size in shape)).reshape(-1, len(axes))
    numbers = {axis: column.tolist() for axis, column in zip(axes, grid.unbind(dim=1), strict=True)}
    layers = layers_of(sites)
    columns: dict[str, list[object]] = {
        "member": numbers["member"],
        "site": [sites[index] for index in numbers["site"]],
        "layer": [layers[index] for index in numbers["site"]],
    }
    return columns | {axis: numbers[axis] for axis in over}


def layers_of(sites: Sequence[str]) -> list[int]:
    """Return the layer of each site: the first number in its name, or its place among the sites."""
    numbers = [re.search(r"\d+", site) for site in sites]
    return [int(number.group()) if number else place for place, number in enumerate(numbers)]
