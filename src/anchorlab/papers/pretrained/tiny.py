"""Tiny language models with a tokenizer, built without any file, for smoke profiles and tests."""

from typing import TYPE_CHECKING, Any

import torch

from anchorlab.errors import from_extra
from anchorlab.language import LanguageModel, wrap

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4}


def tiny_model() -> LanguageModel:
    """Return a Llama of 3 layers with 4 heads, with random weights and a tokenizer of bytes."""
    with from_extra("transformers", "language"):
        import transformers
    tokenizer = byte_tokenizer()
    config = transformers.LlamaConfig(
        **_SIZES,
        vocab_size=len(tokenizer),
        num_hidden_layers=3,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        initializer_range=0.2,
    )
    return wrap(drawn_model(transformers.LlamaForCausalLM, config, 0), tokenizer, "tiny")


def drawn_model(kind: Any, config: Any, seed: int) -> Any:
    """Return a model with the initial weights that transformers draws."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return kind(config)


def byte_tokenizer() -> "PreTrainedTokenizerBase":
    """Return a tokenizer of single bytes, except that a space and the character after it are one token.

    So words differ in their first token whenever they differ in their first character.
    """
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    signs = sorted(pre_tokenizers.ByteLevel.alphabet())
    space = "Ġ"
    begins = [sign for sign in signs if sign != space and sign.isascii()]
    vocabulary = {token: place for place, token in enumerate([*signs, *(space + sign for sign in begins)])}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[(space, sign) for sign in begins]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made)
