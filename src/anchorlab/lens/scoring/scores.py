"""Scores that a method gives to each unit of a model, and to each edge between units."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.lens.grids import Tabled, grid_table
from anchorlab.spec import check_known

if TYPE_CHECKING:
    import polars


class Edge(NamedTuple):
    """A direct path through the stream: from what a unit writes to an input of another unit, or to the logits.

    Fields
        sender: a unit, such as `embed`, `0.1` or `0.mlp`
        receiver: `1.0.q`, `1.0.k` or `1.0.v` of a head, `1.mlp`, or `logits`; where heads share keys and values, the
            number is the key-value head's
    """

    sender: str
    receiver: str

    def __str__(self) -> str:
        return f"{self.sender} → {self.receiver}"


class Passes(NamedTuple):
    """How often a method ran all sequences through the model: forward, and backward for gradients."""

    forward: int
    backward: int


@dataclass(frozen=True, repr=False)
class Scores(Tabled):
    """The score that a method gives to each unit of each member, with the scores of edges if the method has them.

    Units are `embed` (what enters block 0), heads as `layer.head`, and feed-forward layers as `layer.mlp`. A score has
    a sign; methods are compared by its size, as in `ranking`.

    Fields
        method: the name of the method
        units: the names of the units, in the model's order
        passes: how many passes the method took
        edges: the scored edges, ordered by receiver, then by sender

    Shapes
        values: `[member unit]`
        edge_values: `[member edge]`
    """

    method: str
    units: tuple[str, ...]
    values: Float[Tensor, "member unit"]
    passes: Passes
    edges: tuple[Edge, ...] = ()
    edge_values: Float[Tensor, "member edge"] | None = None

    @classmethod
    def of_edges(
        cls,
        method: str,
        units: tuple[str, ...],
        edges: tuple[Edge, ...],
        edge_values: Float[Tensor, "member edge"],
        passes: Passes,
    ) -> "Scores":
        """Return scores of edges, and for each unit the largest absolute score of the edges that leave it.

        So a unit is among the `circuit` at a threshold if one of the edges that leave it is. A sum would let edges of
        opposite signs cancel.
        """
        places = {unit: at for at, unit in enumerate(units)}
        senders = torch.tensor([places[edge.sender] for edge in edges])
        values = edge_values.new_zeros(len(edge_values), len(units))
        values = values.scatter_reduce(1, senders.expand_as(edge_values), edge_values.abs(), "amax")
        return cls(method, units, values, passes, edges, edge_values)

    @property
    def ranking(self) -> Int[Tensor, "member unit"]:
        """The units of each member as indices into `units`, the largest size of a score first; ties in model order."""
        return self.values.abs().argsort(dim=1, descending=True, stable=True)

    def of(self, units: Sequence[str]) -> Float[Tensor, "member unit"]:
        """Return the values of the named units, in the given order."""
        for place, unit in enumerate(units):
            check_known(f"units.{place}", unit, self.units, "unit")
        return self.values[:, [self.units.index(unit) for unit in units]]

    def circuit(self, threshold: float, member: int = 0) -> tuple[Edge, ...]:
        """Return the edges of a member whose score is at least `threshold` in size."""
        values = self._of_edges()
        if not 0 <= member < len(values):
            raise SpecError("member", f"there is no member {member}", f"choose from 0 to {len(values) - 1}")
        kept = values[member].abs() >= threshold
        return tuple(edge for edge, keep in zip(self.edges, kept.tolist(), strict=True) if keep)

    @property
    def table(self) -> "polars.DataFrame":
        """One row per member and unit, with its score."""
        return grid_table({"member": range(len(self.values)), "unit": self.units}, {"score": self.values})

    @property
    def edge_table(self) -> "polars.DataFrame":
        """One row per member and edge, with its score."""
        values = self._of_edges()
        names = [str(edge) for edge in self.edges]
        return grid_table({"member": range(len(values)), "edge": names}, {"score": values})

    def _of_edges(self) -> Tensor:
        if self.edge_values is None:
            raise SpecError("edges", f"{self.method} scores no edges", "use score_edges or prune_edges")
        return self.edge_values
