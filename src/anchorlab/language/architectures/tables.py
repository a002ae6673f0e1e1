"""The tables of the architectures that can be opened, by Hugging Face's `model_type`."""

from collections.abc import Mapping
from dataclasses import replace

from anchorlab.language.architectures.architecture import Architecture

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
