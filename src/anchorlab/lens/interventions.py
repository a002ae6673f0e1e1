"""Interventions: changes of a value at a site, written as data."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from pydantic import ConfigDict, Field, PlainSerializer, PlainValidator, model_validator
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.spec import Spec, unknown_name

Rule = Literal["zero", "mean", "replace", "scale", "add", "project_out", "project_onto"]

_WITHOUT_OPERAND = ("zero", "mean")
_PROJECTIONS = ("project_out", "project_onto")


def _as_tensor(values: Any) -> Tensor:
    if isinstance(values, Tensor) and values.is_floating_point():
        return values.detach().clone()
    try:
        return torch.as_tensor(values, dtype=torch.float64).detach().clone()
    except (TypeError, ValueError, RuntimeError):
        raise ValueError("is not a tensor, nor nested lists of numbers of one shape") from None


class Operand(Spec):
    """Numbers with named axes: a tensor, or nested lists; as JSON, nested lists."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    values: Annotated[Tensor, PlainValidator(_as_tensor), PlainSerializer(lambda values: values.tolist())]
    axes: tuple[str, ...]

    @model_validator(mode="after")
    def _axes_fit(self) -> "Operand":
        if len(set(self.axes)) != len(self.axes) or len(self.axes) != self.values.ndim:
            shape = tuple(self.values.shape)
            raise SpecError("axes", f"{self.axes} are not the axes of values of shape {shape}", "name each axis once")
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Operand) and self._plain() == other._plain()

    def __hash__(self) -> int:
        return hash((self.axes, tuple(self.values.shape)))

    def _plain(self) -> tuple[tuple[str, ...], Any]:
        return self.axes, self.values.tolist()


class Intervention(Spec):
    """A change of the value at one site of a model.

    `where` selects by axis name: an index (negative ones count from the end), or several; an axis that is left out is
    taken whole. With v the selected values and o the operand:

    | rule | v becomes |
    |---|---|
    | `zero` | 0 |
    | `mean` | its mean over all sequences of the look, taken without any intervention |
    | `replace` | o |
    | `scale` | v * o |
    | `add` | v + o |
    | `project_out` | v - (v . u) u, with u = o / norm(o) along the last axis of o |
    | `project_onto` | (v . u) u |

    The operand is a number or an `Operand` whose axes are some of the site's, or `member`; along each it has one entry
    for each selected index, and along the others it is repeated. An axis selected by a single index has size 1.

    An intervention that changes nothing in any member is an error unless `may_do_nothing` is set.

    >>> Intervention(site="blocks.0.attn.hook_pattern", where={"head": 1}, rule="zero").describe()
    'zero blocks.0.attn.hook_pattern head=1'
    """

    site: str
    where: dict[str, int | Annotated[tuple[int, ...], Field(min_length=1)]] = Field(default_factory=dict)
    rule: Rule
    operand: float | Operand | None = None
    may_do_nothing: bool = False

    @model_validator(mode="after")
    def _operand_fits(self) -> "Intervention":
        if self.rule in _WITHOUT_OPERAND and self.operand is not None:
            raise SpecError("operand", f"rule {self.rule!r} takes none", "leave it out")
        if self.rule not in _WITHOUT_OPERAND and self.operand is None:
            raise SpecError("operand", f"rule {self.rule!r} needs one", "give a number or values with their axes")
        if self.rule in _PROJECTIONS:
            if not isinstance(self.operand, Operand) or not self.operand.axes:
                raise SpecError("operand", f"rule {self.rule!r} needs a direction", "give values with their axes")
            if self.operand.axes[-1] in (*self.where, "member", "batch"):
                axis = self.operand.axes[-1]
                raise SpecError("operand", f"a direction along {axis!r} cannot be projected on", "take that axis whole")
            if bool((self.operand.values.norm(dim=-1) == 0).any()):
                raise SpecError("operand", "holds a direction of length 0", "give directions of nonzero length")
        return self

    def describe(self) -> str:
        """One line for people: rule, site and selection."""
        chosen = [f"{axis}={list(at) if isinstance(at, tuple) else at}" for axis, at in self.where.items()]
        return " ".join([self.rule, self.site, *chosen])


@dataclass(frozen=True)
class Moment:
    """When a value passes a site: which member, and which rows of the whole batch; `members` and `batch` are all."""

    member: int
    members: int
    rows: range
    batch: int


def intervene(
    intervention: Intervention,
    value: Tensor,
    axes: tuple[str, ...],
    moment: Moment,
    mean: Tensor | None = None,
    name: str = "intervention",
) -> Tensor:
    """The value after an intervention; `value` itself stays as it is.

    `mean` is the site's mean over the whole batch, with a batch axis of size 1; only the rule `mean` reads it. `name`
    stands for the intervention in errors.

    Errors: `SpecError` for an axis that the site does not have, an index out of range, an operand that does not fit.
    """
    chosen = _chosen(intervention, dict(zip(axes, value.shape, strict=True)) | {"batch": moment.batch}, axes, name)
    # the operand holds an entry for every selected row of the whole batch; here only some of these rows are present
    rows = chosen.get("batch", list(range(moment.batch)))
    slots = [slot for slot, row in enumerate(rows) if row in moment.rows]
    if "batch" in chosen:
        chosen["batch"] = [rows[slot] - moment.rows.start for slot in slots]
    index = _index(chosen, value.shape, axes)
    region = value[index]

    operand = intervention.operand
    if isinstance(operand, Operand):
        sizes = dict(zip(axes, region.shape, strict=True)) | {"member": moment.members}
        if "batch" in axes:
            sizes["batch"] = len(rows)
        _check_sizes(operand, sizes, f"{name}.operand")
        operand = _aligned(operand, axes, moment.member, slots).to(region)
    changed = value.clone()
    if intervention.rule == "mean":
        if mean is None:
            raise SpecError(f"{name}.rule", f"site {intervention.site!r} has no batch to take a mean over")
        changed[index] = mean[_index({**chosen, "batch": [0]} if chosen else {}, mean.shape, axes)].to(region)
    elif intervention.rule in _PROJECTIONS and isinstance(intervention.operand, Operand):
        changed[index] = _projected(region, operand, axes.index(intervention.operand.axes[-1]), intervention.rule)
    else:
        changed[index] = _RULES[intervention.rule](region, operand)
    return changed


_RULES: Mapping[str, Callable[[Tensor, Any], Any]] = {
    "zero": lambda value, operand: 0.0,
    "replace": lambda value, operand: operand,
    "scale": lambda value, operand: value * operand,
    "add": lambda value, operand: value + operand,
}


def _projected(value: Tensor, direction: Any, dim: int, rule: Rule) -> Tensor:
    unit = direction / direction.norm(dim=dim, keepdim=True)
    along = (value * unit).sum(dim=dim, keepdim=True) * unit
    return along if rule == "project_onto" else value - along


def _chosen(
    intervention: Intervention, sizes: Mapping[str, int], axes: Sequence[str], name: str
) -> dict[str, list[int]]:
    chosen = {}
    for axis, at in intervention.where.items():
        field = f"{name}.where.{axis}"
        if axis not in axes:
            raise unknown_name(field, axis, axes, f"axis of {intervention.site}:")
        size = sizes[axis]
        wanted = [at] if isinstance(at, int) else list(at)
        for index in wanted:
            if not -size <= index < size:
                raise SpecError(field, f"index {index} is out of range", f"{intervention.site} has {size} there")
        chosen[axis] = [index % size for index in wanted]
        if len(set(chosen[axis])) != len(wanted):
            raise SpecError(field, f"{wanted} holds an index twice", "name each once")
    return chosen


def _index(chosen: Mapping[str, Sequence[int]], shape: Sequence[int], axes: Sequence[str]) -> tuple[Any, ...]:
    """An index of the region where every axis has a chosen place; the region keeps all axes."""
    if not chosen:
        return (...,)
    index = []
    for dim, (axis, size) in enumerate(zip(axes, shape, strict=True)):
        places = torch.tensor(chosen[axis], dtype=torch.int64) if axis in chosen else torch.arange(size)
        index.append(places.reshape(-1, *(1,) * (len(axes) - 1 - dim)))
    return tuple(index)


def _check_sizes(operand: Operand, sizes: Mapping[str, int], field: str) -> None:
    for axis, size in zip(operand.axes, operand.values.shape, strict=True):
        if axis not in sizes:
            raise unknown_name(f"{field}.axes", axis, sizes, "axis")
        if size != sizes[axis]:
            raise SpecError(field, f"has {size} along {axis!r}, where {sizes[axis]} are selected", "make them agree")


def _aligned(operand: Operand, axes: Sequence[str], member: int, slots: Sequence[int]) -> Tensor:
    """The operand for one member and the rows present, with all axes of the site; those it lacks have size 1."""
    values, names = operand.values, list(operand.axes)
    if "member" in names:
        values = values.select(names.index("member"), member)
        names.remove("member")
    if "batch" in names:
        rows = torch.as_tensor(slots, device=values.device, dtype=torch.int64)
        values = values.index_select(names.index("batch"), rows)
    values = values.permute([names.index(axis) for axis in axes if axis in names])
    return values[tuple(slice(None) if axis in names else None for axis in axes)]
