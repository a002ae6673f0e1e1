"""The units of a landscape: heads and feed-forward layers of a transformer's blocks, by name."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from torch import nn

from anchorlab.errors import SpecError
from anchorlab.models.transformer import Transformer
from anchorlab.spec import unknown_name

Kind = Literal["heads", "all"]
"""All heads; or all heads and all feed-forward layers."""

MOST = 16
"""The largest number of units, which have 65,536 subsets."""


@dataclass(frozen=True)
class BlockUnits:
    """The units of one block: some of its heads, then its feed-forward layer if that is a unit.

    Fields
        layer: the index of the block
        heads: the heads that are units, ascending
        heads_in_all: the number of heads of the block
        feed_forward: whether the feed-forward layer is a unit
    """

    layer: int
    heads: tuple[int, ...]
    heads_in_all: int
    feed_forward: bool

    @property
    def count(self) -> int:
        """The number of units."""
        return len(self.heads) + self.feed_forward

    @property
    def mixed(self) -> str:
        """The site of the values that the heads mixed."""
        return f"blocks.{self.layer}.attn.hook_z"

    @property
    def written(self) -> str:
        """The site of the feed-forward layer's output."""
        return f"blocks.{self.layer}.hook_mlp_out"

    @property
    def sites(self) -> tuple[str, ...]:
        """The sites of the units."""
        return (self.mixed,) * bool(self.heads) + (self.written,) * self.feed_forward


def chosen_units(module: Transformer, units: Kind | Sequence[str]) -> tuple[tuple[str, ...], tuple[BlockUnits, ...]]:
    """Return the names of the units in the model's order, and the units of each block.

    Errors: `SpecError` for an unknown unit, for none, and for more than can be enumerated.
    """
    known = {name: None for layer, block in enumerate(module.blocks) for name in _names(layer, block)}
    if isinstance(units, str):
        if units not in get_args(Kind):
            raise unknown_name("units", units, get_args(Kind), "kind of units")
        wanted = [name for name in known if units == "all" or not name.endswith("mlp")]
    else:
        for place, name in enumerate(units):
            if name not in known:
                raise unknown_name(f"units.{place}", name, known, "unit")
        wanted = [name for name in known if name in units]
    if not wanted:
        raise SpecError("units", "are none", f"name some of {', '.join(known)}")
    if len(wanted) > MOST:
        remedy = f"name {MOST} or fewer, as in units={wanted[:2]}; all others stay as they are"
        raise SpecError("units", f"{len(wanted)} have too many subsets; {MOST} units can be enumerated", remedy)
    return tuple(wanted), tuple(_block_units(layer, block, wanted) for layer, block in enumerate(module.blocks))


def _names(layer: int, block: nn.Module) -> list[str]:
    return [f"{layer}.{head}" for head in range(_heads(block))] + [f"{layer}.mlp"] * (block.mlp is not None)


def _heads(block: nn.Module) -> int:
    return getattr(block.attn, "heads", 1)  # merged attention is a single head


def _block_units(layer: int, block: nn.Module, wanted: Sequence[str]) -> BlockUnits:
    every = _heads(block)
    heads = tuple(head for head in range(every) if f"{layer}.{head}" in wanted)
    return BlockUnits(layer, heads, every, f"{layer}.mlp" in wanted)
