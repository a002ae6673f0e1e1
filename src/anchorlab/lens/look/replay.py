"""Run a module, or what follows one of its blocks, with changed values at some of its sites."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from anchorlab.models.model import gather_positions, predict
from anchorlab.models.transformer import Entering

Changes = Mapping[str, Callable[[Shaped[Tensor, "..."]], Shaped[Tensor, "..."]]]
"""For each site to change, a function from its value to the value that takes its place."""

Streams = Mapping[int, Float[Tensor, "batch position width"]]
"""The streams that enter some blocks, by the index of the block."""


def replay(
    module: nn.Module,
    inputs: Shaped[Tensor, "batch position *feature"],
    positions: Int[Tensor, "*batch scored"],
    changes: Changes,
    *,
    entering: Entering | None = None,
    keep: Collection[int] = (),
    narrow: bool = True,
) -> tuple[Float[Tensor, "batch scored *output"], Streams]:
    """Return a module's output at the positions, and the streams that enter the blocks in `keep`.

    Args:
        module: has sites of its own
        entering: begin at this block, with this stream, instead of at the inputs; the module must take it
        narrow: compute the last layer and its sites only at the positions, if the module takes them
    """
    streams: dict[int, Tensor] = {}
    kept = {f"blocks.{block}.hook_resid_pre": block for block in keep}

    def tap(site: str, value: Tensor) -> Tensor:
        if site in kept:
            streams[kept[site]] = value
        return changes[site](value) if site in changes else value

    others: dict[str, Any] = {"tap": tap} if entering is None else {"tap": tap, "entering": entering}
    if narrow:
        return predict(module, inputs, positions, **others), streams
    return gather_positions(module(inputs, **others), positions), streams
