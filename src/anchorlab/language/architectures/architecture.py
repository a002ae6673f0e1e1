"""The table that describes one of Hugging Face's architectures."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Fusion = Literal["columns", "heads"]
"""The order of queries, keys and values in a fused map: three groups of columns (GPT-2), or head by head (GPT-NeoX)."""


@dataclass(frozen=True)
class Architecture:
    """Where a decoder of Hugging Face keeps its parts, as paths of submodules.

    Fields
        embed, layers, final_norm: below the base model
        attention_norm, attention_out, feed_forward_norm, feed_forward_in, feed_forward_out: below a layer
        pos_embed: the position table, below the base model; None for rotary positions
        query, key, value: the three maps, below a layer; None if they are `fused` in one
        fused: that map, and how it holds the three
        gate: the map before the activation of a gated feed-forward layer, whose `feed_forward_in` is then linear
        attention_added, feed_forward_added: the modules whose outputs are added to the stream; None if these are
            `attention_out` and `feed_forward_out` themselves
        further: paths of further weights below a layer; the keys are our names below the block
        stored_as_inputs: whether maps are stored `[input output]`, as here, rather than `[output input]`
        gain_offset: the constant in a norm's gain, `gain_offset + w`
        float32_softmax: whether attention weights are computed in float32 whatever the precision
        is_parallel: tells from the configuration whether attention and feed-forward both read the stream that enters
            the block
        refused: names of settings that change the computation invisibly to every site; models with such a setting are
            refused
    """

    embed: str
    layers: str
    final_norm: str
    attention_norm: str
    attention_out: str
    feed_forward_norm: str
    feed_forward_in: str
    feed_forward_out: str
    pos_embed: str | None = None
    query: str | None = None
    key: str | None = None
    value: str | None = None
    fused: tuple[str, Fusion] | None = None
    gate: str | None = None
    attention_added: str | None = None
    feed_forward_added: str | None = None
    further: Mapping[str, str] = field(default_factory=dict)
    stored_as_inputs: bool = False
    gain_offset: float = 0.0
    float32_softmax: bool = True
    is_parallel: Callable[[Any], bool] = lambda config: False
    refused: tuple[str, ...] = ()

    @property
    def rotary(self) -> bool:
        """Whether queries and keys are rotated by their positions."""
        return self.pos_embed is None
