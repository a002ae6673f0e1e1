"""Tiny random models that read bytes, with a chat template: any text is a sequence of tokens for them."""

from functools import cache
from typing import Any

import pytest
import torch

from anchorlab.language import LanguageModel, wrap
from anchorlab.papers.pretrained.tiny import byte_tokenizer

transformers = pytest.importorskip("transformers")

END, START = "<|endoftext|>", "<|im_start|>"
CONTEXT = 400
TEMPLATE = (
    "{% for one in messages %}<|im_start|>{{ one['role'] }}\n{{ one['content'] }}<|endoftext|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
KINDS = ("gpt2", "llama", "mistral", "gemma3_text")


def tokenizer(chat: bool = True) -> Any:
    made = byte_tokenizer()
    made.add_special_tokens({"eos_token": END, "additional_special_tokens": [START]})
    made.chat_template = TEMPLATE if chat else None
    return made


def _config(kind: str, tokens: int) -> Any:
    small = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
             "vocab_size": tokens, "max_position_embeddings": CONTEXT, "num_key_value_heads": 2}  # fmt: skip
    if kind == "gpt2":
        return transformers.GPT2Config(
            n_embd=32, n_inner=48, n_layer=2, n_head=4, vocab_size=tokens, n_positions=CONTEXT
        )
    if kind == "llama":
        return transformers.LlamaConfig(**small)
    if kind == "mistral":
        return transformers.MistralConfig(**small, sliding_window=7)
    return transformers.Gemma3TextConfig(**small, head_dim=8, sliding_window=6)


@cache
def byte_model(kind: str, chat: bool = True) -> LanguageModel:
    """A model of random weights, the same in every test; its texts end at a byte that is likely."""
    reads = tokenizer(chat)
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(_config(kind, len(reads)), attn_implementation="eager").eval()
    draw = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.25, generator=draw)
    model.generation_config.eos_token_id = reads.eos_token_id
    return wrap(model, reads, name=kind)
