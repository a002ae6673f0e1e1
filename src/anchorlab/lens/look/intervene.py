"""Apply an intervention to the value at a site."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.lens.look.interventions import BORROWING, PROJECTIONS, Intervention, InterventionRule, Operand
from anchorlab.spec import check_known


@dataclass(frozen=True)
class Moment:
    """The member and batch rows that a value belongs to; `members` and `batch` are the total numbers of both."""

    member: int
    members: int
    rows: range
    batch: int


def intervene(
    intervention: Intervention,
    value: Shaped[Tensor, "*axes"],
    axes: tuple[str, ...],
    moment: Moment,
    borrowed: Shaped[Tensor, "..."] | None = None,
    name: str = "intervention",
) -> Shaped[Tensor, "*axes"]:
    """Return a copy of a site's value for the rows of `moment`, with the intervention applied.

    `borrowed` are the replacement values for the rules `mean`, `resample` and `patch`, in the form that
    `selected_values` returns: one for each row of `moment`, or a single one for all rows, with a batch axis of size 1.
    `name` is the intervention's name in errors.
    """
    sizes = dict(zip(axes, value.shape, strict=True)) | {"batch": moment.batch}
    chosen = _chosen(intervention, sizes, axes, name)
    own = _own_places(intervention, sizes, axes, moment.rows, name)
    # The operand has an entry for every selected row of the batch; `value` holds only some of these rows.
    rows = chosen.get("batch", moment.rows)
    slots: Sequence[int] = moment.rows
    present: Sequence[int] = range(len(moment.rows))
    if "batch" in chosen:
        slots = [slot for slot, row in enumerate(rows) if row in moment.rows]
        present = [rows[slot] - moment.rows.start for slot in slots]
        chosen["batch"] = present
        own = {axis: places[list(present)] for axis, places in own.items()}
    index = _index(chosen, own, value.shape, axes)
    region = value[index]

    operand: Any = intervention.operand
    if isinstance(operand, Operand):
        sizes = dict(zip(axes, region.shape, strict=True)) | {"member": moment.members}
        if "batch" in axes:
            sizes["batch"] = len(rows) if "batch" in chosen else moment.batch
        _check_sizes(operand, sizes, f"{name}.operand")
        operand = _aligned(operand, axes, moment.member, slots).to(region)
    changed = value.clone()
    if intervention.rule in BORROWING:
        if borrowed is None:
            problem = f"site {intervention.site!r} has no batch axis, and so no other sequence to take a value from"
            raise SpecError(f"{name}.rule", problem, "choose another rule")
        changed[index] = (borrowed if len(borrowed) == 1 else borrowed[list(present)]).to(region)
    elif intervention.rule in PROJECTIONS and isinstance(intervention.operand, Operand):
        changed[index] = _projected(region, operand, axes.index(intervention.operand.axes[-1]), intervention.rule)
    else:
        changed[index] = _RULES[intervention.rule](region, operand)
    return changed


def selected_values(
    intervention: Intervention,
    value: Shaped[Tensor, "*axes"],
    axes: tuple[str, ...],
    sequences: Sequence[int],
    batch: int,
    name: str,
) -> Shaped[Tensor, "*selected"]:
    """Return the values that an intervention selects in each row, with all axes of the site; `where.batch` is ignored.

    `sequences` are the batch indices of the value's rows, which determine their places in `at`.
    """
    sizes = dict(zip(axes, value.shape, strict=True)) | {"batch": batch}
    chosen = _chosen(intervention, sizes, axes, name)
    chosen.pop("batch", None)
    return value[_index(chosen, _own_places(intervention, sizes, axes, sequences, name), value.shape, axes)]


_RULES: Mapping[str, Callable[[Tensor, Any], Any]] = {
    "zero": lambda value, operand: 0.0,
    "replace": lambda value, operand: operand,
    "scale": lambda value, operand: value * operand,
    "add": lambda value, operand: value + operand,
}


def _projected(value: Tensor, direction: Any, dim: int, rule: InterventionRule) -> Tensor:
    unit = direction / direction.norm(dim=dim, keepdim=True)
    along: Tensor = (value * unit).sum(dim=dim, keepdim=True) * unit
    return along if rule == "project_onto" else value - along


def _chosen(
    intervention: Intervention, sizes: Mapping[str, int], axes: Sequence[str], name: str
) -> dict[str, list[int]]:
    chosen = {}
    for axis, at in intervention.where.items():
        field = f"{name}.where.{axis}"
        check_known(field, axis, axes, f"axis of {intervention.site}:")
        size = sizes[axis]
        for index in at:
            if not -size <= index < size:
                raise SpecError(field, f"index {index} is out of range", f"{intervention.site} has {size} there")
        chosen[axis] = [index % size for index in at]
        if len(set(chosen[axis])) != len(at):
            raise SpecError(field, f"{list(at)} holds an index twice", "name each once")
    return chosen


def _own_places(
    intervention: Intervention, sizes: Mapping[str, int], axes: Sequence[str], sequences: Sequence[int], name: str
) -> dict[str, Int[Tensor, "sequence place"]]:
    own = {}
    for axis, rows in intervention.at.items():
        field = f"{name}.at.{axis}"
        check_known(field, axis, axes, f"axis of {intervention.site}:")
        if "batch" not in axes:
            raise SpecError(field, f"{intervention.site} has no batch axis", "use where")
        if len(rows) != sizes["batch"]:
            raise SpecError(field, f"holds places for {len(rows)} sequences", f"the batch has {sizes['batch']}")
        places = torch.tensor([rows[sequence] for sequence in sequences])
        if bool((places >= sizes[axis]).any()):
            raise SpecError(field, "an index is out of range", f"{intervention.site} has {sizes[axis]} there")
        if bool((places.sort(dim=1).values.diff(dim=1) == 0).any()):
            raise SpecError(field, "a sequence has a place twice", "name each once")
        own[axis] = places
    return own


def _index(
    chosen: Mapping[str, Sequence[int]], own: Mapping[str, Tensor], shape: Sequence[int], axes: Sequence[str]
) -> tuple[Any, ...]:
    """Return the index of the selected region; the region keeps all axes of the site."""
    if not own and all(len(places) == 1 for places in chosen.values()):  # slices give a view, which is much faster
        return tuple(slice(at[0], at[0] + 1) if (at := chosen.get(axis)) else slice(None) for axis in axes)
    index: list[Any] = []
    for dim, (axis, size) in enumerate(zip(axes, shape, strict=True)):
        beyond = (1,) * (len(axes) - 1 - dim)
        if axis in own:
            places = own[axis]
            index.append(places.reshape(len(places), *(1,) * (dim - 1), places.shape[1], *beyond))
        else:
            places = torch.tensor(list(chosen[axis]), dtype=torch.int64) if axis in chosen else torch.arange(size)
            index.append(places.reshape(-1, *beyond))
    return tuple(index)


def _check_sizes(operand: Operand, sizes: Mapping[str, int], field: str) -> None:
    for axis, size in zip(operand.axes, operand.values.shape, strict=True):
        check_known(f"{field}.axes", axis, sizes, "axis")
        if size != sizes[axis]:
            raise SpecError(field, f"has {size} along {axis!r}, where {sizes[axis]} are selected", "make them agree")


def _aligned(operand: Operand, axes: Sequence[str], member: int, slots: Sequence[int]) -> Tensor:
    """Return the operand for one member and some rows, with all axes of the site; missing axes have size 1."""
    values, names = operand.values, list(operand.axes)
    if "member" in names:
        values = values.select(names.index("member"), member)
        names.remove("member")
    if "batch" in names:
        rows = torch.as_tensor(slots, device=values.device, dtype=torch.int64)
        values = values.index_select(names.index("batch"), rows)
    values = values.permute([names.index(axis) for axis in axes if axis in names])
    return values[tuple(slice(None) if axis in names else None for axis in axes)]
