"""The units of a landscape by name: heads of a transformer's blocks, heads at one role, and feed-forward layers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Int
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.lens.vectors.attribution import blocks
from anchorlab.models.block import Block
from anchorlab.models.model import gather_positions
from anchorlab.models.transformer import Transformer
from anchorlab.spec import check_known
from anchorlab.tasks.batch import Batch
from anchorlab.tasks.task import Task

Kind = Literal["heads", "all", "roles"]
"""All heads; all heads and all feed-forward layers; or every head at the positions of each role."""

MOST = 16
"""The largest number of units, which have 65,536 subsets."""


OTHER = "other"
"""The role of positions to which the task gives none."""


@dataclass(frozen=True)
class RoleMap:
    """The role of every position.

    Fields
        names: the task's roles, with hyphens for spaces, such as `anchor-1`; then `other`
        cells: the index in `names` of each position's role
        scored: the same for the scored positions
    """

    names: tuple[str, ...]
    cells: Int[Tensor, "batch position"]
    scored: Int[Tensor, "batch scored"]


def role_map(task: Task, batch: Batch) -> RoleMap:
    """Return the role of every position: the first of the task's roles that has it, else `other`."""
    roles = task.roles(batch)
    if OTHER in roles:
        raise SpecError("task.roles", f"{OTHER!r} has a meaning of its own", "call the role something else")
    cells = torch.full(batch.inputs.shape[:2], len(roles))
    # in reverse, so that the first role of a position is written last and stays
    for index, places in reversed([*enumerate(roles.values())]):
        row, instance = (places >= 0).nonzero(as_tuple=True)
        cells[row, places[row, instance].to(cells.device)] = index
    if len(torch.unique(cells)) == 1:
        problem = "has no roles that tell positions apart"
        raise SpecError("task", problem, "define `roles` on it, or choose units='heads'")
    names = (*(name.replace(" ", "-") for name in roles), OTHER)
    return RoleMap(names, cells, gather_positions(cells, batch.positions))


@dataclass(frozen=True)
class BlockUnits:
    """The units of one block: some of its heads, each whole or by roles, then its feed-forward layer if that is a unit.

    Fields
        heads: the head of each unit except the feed-forward layer, ascending
        roles: the index of the role to whose positions each of these units is limited; None: all positions
        heads_in_all: the number of heads of the block
    """

    layer: int
    heads: tuple[int, ...]
    roles: tuple[int | None, ...]
    heads_in_all: int
    feed_forward: bool

    @property
    def count(self) -> int:
        """The number of units."""
        return len(self.heads) + self.feed_forward

    @property
    def mixed(self) -> str:
        """The site of the heads' outputs before the output map."""
        return f"blocks.{self.layer}.attn.hook_z"

    @property
    def written(self) -> str:
        """The site of the feed-forward layer's output."""
        return f"blocks.{self.layer}.hook_mlp_out"

    @property
    def sites(self) -> tuple[str, ...]:
        """The sites of the units."""
        return (self.mixed,) * bool(self.heads) + (self.written,) * self.feed_forward

    def owners(self, cells: Int[Tensor, "*cell"] | None) -> Int[Tensor, "*cell head"]:
        """Return the index in `heads` of the unit that each head belongs to, -1 for none.

        `cells` are the roles of positions; None if no unit has one.
        """
        cells = torch.zeros(()) if cells is None else cells
        owners = torch.full((*cells.shape, self.heads_in_all), -1, device=cells.device)
        for unit, (head, role) in enumerate(zip(self.heads, self.roles, strict=True)):
            owners[..., head] = unit if role is None else torch.where(cells == role, unit, owners[..., head])
        return owners


def have_roles(units: Kind | Sequence[str]) -> bool:
    """Return whether some units are heads at one role."""
    return units == "roles" if isinstance(units, str) else any("@" in name for name in units)


def chosen_units(
    module: Transformer, units: Kind | Sequence[str], roles: RoleMap | None = None
) -> tuple[tuple[str, ...], tuple[BlockUnits, ...]]:
    """Return the names of the units in the model's order, and the units of each block.

    `roles` is needed if `have_roles`. The kind `roles` leaves out units that can change nothing: roles without
    positions and, in the last block, without scored positions.
    """
    every = () if roles is None else roles.names
    known = {name: None for layer, block in enumerate(blocks(module)) for name in _names(layer, block, every)}
    if isinstance(units, str):
        check_known("units", units, get_args(Kind), "kind of units")
        wanted = [name for name in known if units == "all" or not name.endswith("mlp")]
        if roles is not None:
            wanted = _by_role(module, roles)
    else:
        for place, name in enumerate(units):
            check_known(f"units.{place}", name, known, "unit")
            if (head := name.partition("@")[0]) != name and head in units:
                raise SpecError(f"units.{place}", f"{name!r} is part of {head!r}", "name the head or its roles")
        wanted = [name for name in known if name in units]
    if not wanted:
        raise SpecError("units", "are none", f"name some of {', '.join(known)}")
    if len(wanted) > MOST:
        remedy = f"name {MOST} or fewer, as in units={wanted[:2]}; all others stay as they are"
        raise SpecError("units", f"{len(wanted)} have too many subsets; {MOST} units can be enumerated", remedy)
    return tuple(wanted), tuple(_block_units(layer, block, wanted, every) for layer, block in enumerate(blocks(module)))


def _names(layer: int, block: Block, roles: Sequence[str]) -> list[str]:
    heads = [f"{layer}.{head}" for head in range(block.attn.heads)]
    by_role = [name for head in heads for name in (head, *(f"{head}@{role}" for role in roles))]
    return by_role + [f"{layer}.mlp"] * (block.mlp is not None)


def _by_role(module: Transformer, roles: RoleMap) -> list[str]:
    """Return every head at every role that has positions where the head's block is computed."""
    last = len(module.blocks) - 1
    return [
        f"{layer}.{head}@{roles.names[role]}"
        for layer, block in enumerate(blocks(module))
        for head in range(block.attn.heads)
        for role in torch.unique(roles.scored if layer == last else roles.cells).tolist()
    ]


def _block_units(layer: int, block: Block, wanted: Sequence[str], roles: Sequence[str]) -> BlockUnits:
    own = [name.partition(".")[2].partition("@") for name in wanted if name.startswith(f"{layer}.")]
    parts = [(int(head), roles.index(role) if role else None) for head, _, role in own if head != "mlp"]
    heads, at = tuple(head for head, _ in parts), tuple(role for _, role in parts)
    return BlockUnits(layer, heads, at, block.attn.heads, f"{layer}.mlp" in wanted)
