"""Interventions: changes of the value at a site, written as data."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    field_validator,
    model_validator,
)
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.spec import Spec

InterventionRule = Literal[
    "zero", "mean", "resample", "patch", "replace", "scale", "add", "project_out", "project_onto"
]

BORROWING = ("mean", "resample", "patch")
"""The rules that take their values from a pass without interventions."""

WITHOUT_OPERAND = ("zero", *BORROWING)
PROJECTIONS = ("project_out", "project_onto")


def _as_tensor(values: Any) -> Tensor:
    if isinstance(values, Tensor) and values.is_floating_point():
        return values.detach().clone()
    try:
        return torch.as_tensor(values, dtype=torch.float64).detach().clone()
    except (TypeError, ValueError, RuntimeError):
        raise ValueError("is neither a tensor nor nested lists of numbers with one shape") from None


class Operand(Spec):
    """Numbers with named axes, given as a tensor or nested lists; in JSON, nested lists."""

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
        return isinstance(other, Operand) and self.axes == other.axes and self.values.tolist() == other.values.tolist()

    def __hash__(self) -> int:
        return hash((self.axes, tuple(self.values.shape)))


Indices = Annotated[
    tuple[int, ...], Field(min_length=1), BeforeValidator(lambda at: (at,) if isinstance(at, int) else at)
]
"""Places along one axis; an integer counts as a single place."""


def _one_row_each(at: Any) -> Any:
    rows = at.tolist() if hasattr(at, "tolist") else at
    return [[row] if isinstance(row, int) else row for row in rows] if isinstance(rows, list | tuple) else rows


OwnIndices = Annotated[
    tuple[Annotated[tuple[int, ...], Field(min_length=1)], ...],
    Field(min_length=1),
    BeforeValidator(_one_row_each),
]
"""Places along one axis for each sequence: `[batch]` or `[batch place]`, as an integer tensor or nested lists."""


def shift_pattern(length: int, k: int) -> Operand:
    """Return the pattern of a head that shifts by exactly k, P[q, q - k] = 1, for `replace` at a `hook_pattern`.

    The first k queries attend to position 0 (anchor functions, appendix B).

    >>> shift_pattern(3, 1).values.tolist()
    [[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]

    Shapes
        values: `[query key]`, each `length`
    """
    if not 0 <= k < length:
        raise SpecError("k", f"{k} is not a shift within {length} positions", f"give one of 0..{length - 1}")
    keys = (torch.arange(length) - k).clamp(min=0)
    return Operand(values=torch.nn.functional.one_hot(keys, length).double(), axes=("query", "key"))


class Intervention(Spec):
    """A change of the value at one site of a model.

    `where` selects one or several indices of an axis, by axis name. Negative indices count from the end, and axes not
    mentioned are selected whole. `at` selects places that differ between sequences, such as the positions of a role:
    for each sequence one index from 0, or several, equally many for each. With v the selected values and o the operand:

    | rule | v becomes |
    |---|---|
    | `zero` | 0 |
    | `mean` | its mean over all sequences |
    | `resample` | the v of another sequence, by a permutation without fixed points drawn from `seed` |
    | `patch` | the value at the same places for the `patch_inputs` |
    | `replace` | o |
    | `scale` | v * o |
    | `add` | v + o |
    | `project_out` | v - (v . u) u, with u = o / norm(o) along the last axis of o |
    | `project_onto` | (v . u) u |

    `mean`, `resample` and `patch` take values from a pass without interventions. For `mean` and `resample` each
    sequence contributes the values at its own places of `at`. Where shorter sequences are padded, only those with a
    token at a place contribute there, and the last place is each sequence's own last token.

    The operand is a number, or an `Operand` whose axes are among the site's axes and `member`. It has one entry per
    selected index along each of its axes (size 1 for a single index), and is repeated along the site's other axes.

    An intervention that changes nothing in any member is an error unless `may_do_nothing` is set.

    >>> Intervention(site="blocks.0.attn.hook_pattern", where={"head": 1}, rule="zero").describe()
    'zero blocks.0.attn.hook_pattern head=1'
    """

    site: str
    where: dict[str, Indices] = Field(default_factory=dict)
    at: dict[str, OwnIndices] = Field(default_factory=dict)
    rule: InterventionRule
    operand: float | Operand | None = None
    seed: int | None = None
    may_do_nothing: bool = False

    @field_validator("operand", mode="before")
    @classmethod
    def _as_operand(cls, given: Any) -> Any:
        if isinstance(given, Mapping):
            return Operand.parse(given)
        if not isinstance(given, list | tuple | Tensor | np.ndarray):
            return given
        values = _as_tensor(given)
        if values.ndim == 0:
            return values.item()
        axes = ("width",) if values.ndim == 1 else (*["..."] * (values.ndim - 1), "width")
        problem = f"has no names for the axes of its shape {tuple(values.shape)}"
        raise SpecError("", problem, f"write Operand(values=..., axes={axes}) of anchorlab.lens")

    @model_validator(mode="after")
    def _fields_fit(self) -> "Intervention":
        for axis, rows in self.at.items():
            if axis in ("batch", "member"):
                raise SpecError(f"at.{axis}", "cannot differ between sequences", "select it in where")
            if axis in self.where:
                raise SpecError(f"at.{axis}", "is selected in where, too", "select it once")
            if len({len(row) for row in rows}) > 1:
                raise SpecError(f"at.{axis}", "has more places in some sequences", "give the same number for each")
            if min(map(min, rows)) < 0:
                raise SpecError(f"at.{axis}", "lacks a place in some sequences", "give each a place counted from 0")
        if (self.seed is None) == (self.rule == "resample"):
            problem = "is missing" if self.seed is None else f"rule {self.rule!r} draws nothing"
            raise SpecError("seed", problem, "give a number" if self.seed is None else "leave it out")
        if self.rule in WITHOUT_OPERAND and self.operand is not None:
            raise SpecError("operand", f"rule {self.rule!r} takes none", "leave it out")
        if self.rule not in WITHOUT_OPERAND and self.operand is None:
            raise SpecError("operand", f"rule {self.rule!r} needs one", "give a number or values with their axes")
        if self.rule in PROJECTIONS:
            if not isinstance(self.operand, Operand) or not self.operand.axes:
                raise SpecError("operand", f"rule {self.rule!r} needs a direction", "give values with their axes")
            if self.operand.axes[-1] in (*self.where, *self.at, "member", "batch"):
                axis = self.operand.axes[-1]
                raise SpecError("operand", f"cannot project along {axis!r}", "choose an axis that is selected whole")
            if bool((self.operand.values.norm(dim=-1) == 0).any()):
                raise SpecError("operand", "holds a direction of length 0", "give directions of nonzero length")
        return self

    def describe(self) -> str:
        """Return the rule, the site and the selection in one line of text."""
        chosen = [f"{axis}={at[0] if len(at) == 1 else list(at)}" for axis, at in self.where.items()]
        return " ".join([self.rule, self.site, *chosen, *(f"at {axis}" for axis in self.at)])
