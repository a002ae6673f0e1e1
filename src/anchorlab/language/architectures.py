"""The locations of the parts of Hugging Face's models, a table for each architecture."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Fusion = Literal["columns", "heads"]
"""The order of queries, keys and values in a fused map: three groups of columns (GPT-2), or head by head (GPT-NeoX)."""


@dataclass(frozen=True)
class Architecture:
    """The locations of a Hugging Face decoder's parts, as paths of submodules.

    Fields
        embed, layers, final_norm: below the base model
        attention_norm, attention_out, feed_forward_norm, feed_forward_in, feed_forward_out: below a layer
        pos_embed: the position table, below the base model; None for rotary positions
        query, key, value: the three maps, below a layer; None if they are `fused` in one
        fused: the path of that map, and the order of its outputs
        gate: the map before the activation of a gated feed-forward layer, whose `feed_forward_in` is then linear
        attention_added, feed_forward_added: the modules whose outputs are added to the stream; None if these are
            `attention_out` and `feed_forward_out` themselves
        further: paths of further weights below a layer; the keys are our names below the block
        stored_as_inputs: whether maps are stored `[input output]`, as here, rather than `[output input]`
        gain_offset: the constant in a norm's gain, `gain_offset + w`
        float32_softmax: whether attention weights are computed in float32 at any precision
        is_parallel: tells from the configuration whether attention and feed-forward both read the stream that enters
            the block
        refused: names of settings that change the computation in ways that no site shows; models with such a setting
            are refused
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


_GPT2 = Architecture(
    embed="wte",
    pos_embed="wpe",
    layers="h",
    final_norm="ln_f",
    attention_norm="ln_1",
    fused=("attn.c_attn", "columns"),
    attention_out="attn.c_proj",
    feed_forward_norm="ln_2",
    feed_forward_in="mlp.c_fc",
    feed_forward_out="mlp.c_proj",
    stored_as_inputs=True,
    float32_softmax=False,
    refused=("add_cross_attention", "reorder_and_upcast_attn"),
)

_GPT_NEOX = Architecture(
    embed="embed_in",
    layers="layers",
    final_norm="final_layer_norm",
    attention_norm="input_layernorm",
    fused=("attention.query_key_value", "heads"),
    attention_out="attention.dense",
    feed_forward_norm="post_attention_layernorm",
    feed_forward_in="mlp.dense_h_to_4h",
    feed_forward_out="mlp.dense_4h_to_h",
    is_parallel=lambda config: bool(config.use_parallel_residual),
)

_LLAMA = Architecture(
    embed="embed_tokens",
    layers="layers",
    final_norm="norm",
    attention_norm="input_layernorm",
    query="self_attn.q_proj",
    key="self_attn.k_proj",
    value="self_attn.v_proj",
    attention_out="self_attn.o_proj",
    feed_forward_norm="post_attention_layernorm",
    gate="mlp.gate_proj",
    feed_forward_in="mlp.up_proj",
    feed_forward_out="mlp.down_proj",
)

_NORMED_HEADS = {"attn.q_norm.w": "self_attn.q_norm.weight", "attn.k_norm.w": "self_attn.k_norm.weight"}

_GEMMA = replace(_LLAMA, gain_offset=1.0)

_GEMMA_3 = replace(
    _GEMMA,
    attention_added="post_attention_layernorm",
    feed_forward_norm="pre_feedforward_layernorm",
    feed_forward_added="post_feedforward_layernorm",
    further={
        **_NORMED_HEADS,
        "ln1_post.w": "post_attention_layernorm.weight",
        "ln2_post.w": "post_feedforward_layernorm.weight",
    },
    refused=("final_logit_softcapping", "attn_logit_softcapping", "use_bidirectional_attention"),
)

ARCHITECTURES: Mapping[str, Architecture] = {
    "gpt2": _GPT2,
    "gpt_neox": _GPT_NEOX,
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "qwen2": _LLAMA,
    "qwen3": replace(_LLAMA, further=_NORMED_HEADS),
    "gemma": _GEMMA,
    "gemma3_text": _GEMMA_3,
}
