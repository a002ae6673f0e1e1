"""The names of a Llama's weights in a GGUF file."""

_WHOLE = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_PARTS = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
}  # fmt: skip


def name_in_gguf(theirs: str) -> str:
    """Return the name in a GGUF file of a weight that transformers names so."""
    if theirs in _WHOLE:
        return _WHOLE[theirs]
    _, _, layer, *part, kind = theirs.split(".")
    return f"blk.{layer}.{_PARTS['.'.join(part)]}.{kind}"
