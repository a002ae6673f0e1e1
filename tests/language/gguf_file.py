"""A GGUF file of the tiny Llama, written tensor by tensor."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.language.tiny import CONTEXT, HEADS, HIDDEN, LAYERS, TOKENS, WIDTH, hugging_face

gguf = pytest.importorskip("gguf")

_WHOLE = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_PARTS = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
}

Tensors = dict[str, np.ndarray[Any, Any]]


def write_gguf(path: Path, change: Callable[[Tensors], Tensors], layers: int = LAYERS) -> None:
    """Write the tiny Llama with changed tensors, and with a number of blocks in the metadata."""
    model = hugging_face("llama")
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(model.config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(TOKENS)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"t{token}" for token in range(TOKENS)])
    writer.add_token_types([1] * TOKENS)
    writer.add_token_merges([])
    for name, value in change(
        {_name(name): _stored(name, value) for name, value in model.state_dict().items()}
    ).items():
        writer.add_tensor(name, np.ascontiguousarray(value))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _name(theirs: str) -> str:
    if theirs in _WHOLE:
        return _WHOLE[theirs]
    _, _, layer, *part, kind = theirs.split(".")
    return f"blk.{layer}.{_PARTS['.'.join(part)]}.{kind}"


def _stored(name: str, value: Any) -> Any:
    """Return a weight as GGUF stores it: the rotated halves of each head are interleaved."""
    heads = {"q_proj": HEADS, "k_proj": 2}.get(name.split(".")[-2])
    weight = value.clone().numpy()
    if heads is None:
        return weight
    return weight.reshape(heads, 2, -1, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)
