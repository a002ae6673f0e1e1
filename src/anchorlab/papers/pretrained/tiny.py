"""A tiny random language model with a tokenizer, made without any file: for smoke profiles and tests."""

from typing import TYPE_CHECKING

import torch

from anchorlab.errors import SpecError
from anchorlab.language import LanguageModel, wrap

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_LAYERS, _HEADS, _WIDTH, _CONTEXT = 3, 4, 32, 4096


def tiny_model(seed: int = 0) -> LanguageModel:
    """Return a Llama of 3 layers with 4 heads, with random weights and a tokenizer of bytes.

    Errors: `SpecError` if transformers is not installed.
    """
    try:
        import transformers
    except ImportError as error:
        raise SpecError("transformers", "is not installed", "run pip install 'anchorlab[language]'") from error
    tokenizer = byte_tokenizer()
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=_WIDTH,
        intermediate_size=2 * _WIDTH,
        num_hidden_layers=_LAYERS,
        num_attention_heads=_HEADS,
        num_key_value_heads=_HEADS // 2,
        max_position_embeddings=_CONTEXT,
        initializer_range=0.2,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return wrap(transformers.LlamaForCausalLM(config), tokenizer, "tiny")


def byte_tokenizer() -> "PreTrainedTokenizerBase":
    """Return a tokenizer of single bytes, except that a space and the sign behind it are one token.

    So words differ in their first token as far as they differ in their first sign.
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
