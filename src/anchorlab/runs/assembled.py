"""Runs of single members, read as one run."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from anchorlab.errors import StoreError
from anchorlab.runs.cell import Cell
from anchorlab.runs.run import Run

if TYPE_CHECKING:
    import polars
    import torch
    from jaxtyping import Shaped


class AssembledRun(Run):
    """A run whose members were trained one by one, each in a run of its own, in any store.

    Members do not interact, so these runs together are the run of `cell`. Nothing is written.

    Args:
        cell: the run with all members
        parts: the finished run of each member, in the order of the members
    """

    def __init__(self, cell: Cell, parts: Sequence[Run]) -> None:
        super().__init__(parts[0].path.with_name(cell.address))
        self.cell, self.parts = cell, tuple(parts)

    def __repr__(self) -> str:
        return f"AssembledRun({self.address!r}, {list(self.parts)})"

    @property
    def finished(self) -> bool:
        """Whether every member's run is complete."""
        return all(part.finished for part in self.parts)

    @property
    def environments(self) -> list[dict[str, str | None]]:
        """The environments in which the members were computed, each once."""
        found = [one for part in self.parts for one in part.environments]
        return [one for at, one in enumerate(found) if one not in found[:at]]

    @property
    def made_by(self) -> list[dict[str, Any]]:
        """Where each member was trained, as in `Run.made_by`."""
        return [{**one, "members": [member]} for member, part in enumerate(self.parts) for one in part.made_by]

    @property
    def size(self) -> int:
        """The size of all members' files in bytes."""
        return sum(part.size for part in self.parts)

    def metrics(self) -> "polars.DataFrame":
        """Return the table of metrics, with the columns of `metrics_schema`."""
        import polars as pl

        tables = (
            part.metrics().with_columns(pl.lit(member, pl.Int32).alias("member"))
            for member, part in enumerate(self.parts)
        )
        return pl.concat(tables)

    def checkpoints(self) -> list[int]:
        """Return the steps at which every member has a checkpoint, or has ended before, ascending."""
        kept = [part.checkpoints() for part in self.parts]
        if not all(kept):
            return []
        return sorted(step for step in {*chain(*kept)} if all(step in one or step > one[-1] for one in kept))

    def read_checkpoint(self, step: int) -> "dict[str, Shaped[torch.Tensor, 'member ...']]":
        """Return the weights of all members at `step`, the last ones of members that have ended before; as `Run`."""
        steps = [min(step, part.checkpoints()[-1]) if step in self.checkpoints() else step for part in self.parts]
        return _stacked([part.read_checkpoint(one) for part, one in zip(self.parts, steps, strict=True)])

    def readings(self) -> "dict[str, Shaped[torch.Tensor, 'member ...']]":
        """Return the readings that every member's run keeps, each tensor `[member ...]`."""
        found = [part.readings() for part in self.parts]
        shared = [name for name in found[0] if all(name in one for one in found)]
        return _stacked([{name: one[name] for name in shared} for one in found])

    def problems(self) -> list[str]:
        """Read every file of every member and return one line per problem."""
        return [problem for part in self.parts for problem in part.problems()]


def _stacked(
    members: "Sequence[Mapping[str, Shaped[torch.Tensor, 'one ...']]]",
) -> "dict[str, Shaped[torch.Tensor, 'member ...']]":
    import torch

    for name, first in members[0].items():
        if any(one[name].shape != first.shape for one in members):
            raise StoreError(f"{name} has another shape in another member's run; train its part again")
    return {name: torch.cat([one[name] for one in members]) for name in members[0]}
