"""Tiny language models with a tokenizer, built without any file, for smoke profiles and tests."""

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

from anchorlab.errors import from_extra
from anchorlab.language import LanguageModel, wrap
from anchorlab.language.checkpoints import revision_of
from anchorlab.language.encode import windows
from anchorlab.language.pretrained import quiet
from anchorlab.language.sample_text import english_page
from anchorlab.rng import generator

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


def train_tiny(folder: Path, steps: Sequence[int]) -> None:
    """Train a GPT-NeoX of 2 layers with 4 heads on the page of English, and save it at the given steps.

    Each checkpoint is a folder such as `step4`, in half precision with its tokenizer, like Pythia's on the hub.
    """
    import transformers

    tokenizer, context = byte_tokenizer(), 128
    config = transformers.GPTNeoXConfig(
        **_SIZES,
        vocab_size=len(tokenizer),
        num_hidden_layers=2,
        max_position_embeddings=context,
        rotary_pct=0.5,
    )
    pieces = windows(tokenizer, english_page().text, 32, context)
    random = generator(0, "language", "tiny training")
    model = drawn_model(transformers.GPTNeoXForCausalLM, config, 0)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(max(steps) + 1):
        if step in steps:
            saved = copy.deepcopy(model).half()
            with quiet():
                saved.save_pretrained(folder / revision_of(step))
            tokenizer.save_pretrained(folder / revision_of(step))
        batch = pieces[torch.from_numpy(random.choice(len(pieces), 8, replace=False))]
        logits = model(input_ids=batch, use_cache=False).logits[:, :-1]
        loss = functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        optimiser.step()


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
