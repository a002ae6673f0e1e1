"""The roles of positions: a task's roles as a partition of the positions of every sequence."""

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.models.model import gather_positions
from anchorlab.tasks.batch import Batch
from anchorlab.tasks.task import Task

OTHER = "other"
"""The role of positions to which the task gives none."""


@dataclass(frozen=True)
class RoleMap:
    """The role of every position.

    Fields
        names: the task's roles, with hyphens for spaces, such as `anchor-1`; then `other`
        cells: the index in `names` of each position's role
        scored: the same of the scored positions
    """

    names: tuple[str, ...]
    cells: Int[Tensor, "batch position"]
    scored: Int[Tensor, "batch scored"]

    def occurring(self, cells: Int[Tensor, "batch _"]) -> list[str]:
        """Return the names of the roles among some cells."""
        return [self.names[index] for index in torch.unique(cells).tolist()]


def role_map(task: Task, batch: Batch) -> RoleMap:
    """Return the role of every position: the first of the task's roles that has it, else `other`."""
    roles = task.roles(batch)
    if OTHER in roles:
        raise SpecError("task.roles", f"{OTHER!r} has a meaning of its own", "call the role something else")
    cells = torch.full(batch.inputs.shape[:2], len(roles))
    for index, places in reversed([*enumerate(roles.values())]):
        row, instance = (places >= 0).nonzero(as_tuple=True)
        cells[row, places[row, instance].to(cells.device)] = index
    if len(torch.unique(cells)) == 1:
        raise SpecError(
            "task", "has no roles that tell positions apart", "define `roles` on it, or choose units='heads'"
        )
    names = (*(name.replace(" ", "-") for name in roles), OTHER)
    return RoleMap(names, cells, gather_positions(cells, batch.positions))
