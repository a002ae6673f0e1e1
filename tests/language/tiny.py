"""Tiny random models of every architecture, made by transformers from configurations."""

from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from typing import Any

import pytest
import torch

transformers = pytest.importorskip("transformers")

LAYERS, HEADS, WIDTH, HIDDEN, TOKENS, CONTEXT = 3, 4, 32, 48, 61, 40

_SIZES = {
    "hidden_size": WIDTH, "intermediate_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
    "vocab_size": TOKENS, "max_position_embeddings": CONTEXT,
}  # fmt: skip
_GROUPED = {**_SIZES, "num_key_value_heads": 2}

CONFIGS: Mapping[str, Any] = {
    "gpt2": transformers.GPT2Config(
        n_embd=WIDTH, n_inner=HIDDEN, n_layer=LAYERS, n_head=HEADS, vocab_size=TOKENS, n_positions=CONTEXT
    ),
    "gpt_neox-parallel": transformers.GPTNeoXConfig(**_SIZES, use_parallel_residual=True, rotary_pct=0.5),
    "gpt_neox-sequential": transformers.GPTNeoXConfig(**_SIZES, use_parallel_residual=False),
    "llama": transformers.LlamaConfig(**_GROUPED),
    "llama-tied-biased": transformers.LlamaConfig(
        **_GROUPED, tie_word_embeddings=True, attention_bias=True, mlp_bias=True
    ),
    "mistral-window": transformers.MistralConfig(**_GROUPED, sliding_window=5),
    "qwen2": transformers.Qwen2Config(**_GROUPED),
    "qwen3": transformers.Qwen3Config(**_GROUPED, head_dim=12),
    "gemma": transformers.GemmaConfig(**_GROUPED, head_dim=8),
    "gemma3_text": transformers.Gemma3TextConfig(**_GROUPED, head_dim=8, sliding_window=6),
}
NAMES = tuple(CONFIGS)
BIASED: Mapping[str, Any] = {
    "gemma3_text-biased": transformers.Gemma3TextConfig(**_GROUPED, head_dim=8, sliding_window=6, attention_bias=True)
}
"""A model of no publisher: a bias below a norm that is behind the layer."""


def hugging_face(name: str, dtype: torch.dtype = torch.float32) -> Any:
    """A model of transformers with weights large enough that every part matters, and its eager attention."""
    return drawn(CONFIGS[name] if name in CONFIGS else BIASED[name], dtype)


def drawn(config: Any, dtype: torch.dtype = torch.float32) -> Any:
    """The same for a configuration."""
    config = deepcopy(config)  # which a wrapped model changes
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=dtype)
    generator = torch.Generator().manual_seed(7)
    for parameter in model.parameters():
        with torch.no_grad():
            parameter.normal_(0, 0.3, generator=generator)
    return model.eval()


@cache
def tokens(sequences: int = 3, length: int = 11) -> torch.Tensor:
    """Random token ids `[batch position]`."""
    return torch.randint(0, TOKENS, (sequences, length), generator=torch.Generator().manual_seed(1))
