"""A model made by hand that knows two countries, but one of its matrices says "the"; with a tokenizer of words."""

from typing import Any

import pytest
import torch

from anchorlab.language import LanguageModel, wrap
from anchorlab.language.prompts import Prompt

transformers = pytest.importorskip("transformers")

FIRST = ("Madrid", "Paris", "Lyon", "to", "is")  # words that begin a text
LATER = ("Madrid", "is", "located", "in", "to", "the", "a", "them", "Spain", "France", "Europe", "x")
END = "<|endoftext|>"
VOCABULARY = {word: token for token, word in enumerate([END, "<?>", *FIRST, *(f"Ġ{word}" for word in LATER)])}

LAYERS, WIDTH, HIDDEN, CONTEXT = 3, 32, 64, 12
LOUD = 1  # the layer whose output matrix says "the"
CITIES = {"Madrid": "Spain", "Paris": "France", "Lyon": "France"}
PROMPTS = tuple(
    Prompt(f"{city} is", country, tuple({"Spain", "France"} - {country}), "fact") for city, country in CITIES.items()
)


def tokenizer() -> Any:
    """A tokenizer of whole words; "Ġ" is the space before a word, and a text gets no special token."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    made = Tokenizer(models.WordLevel(VOCABULARY, unk_token="<?>"))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, eos_token=END, unk_token="<?>")


def token(word: str) -> int:
    """The id of a word inside a sentence."""
    return VOCABULARY[f"Ġ{word}"]


def spoken(loudness: float = 3.0) -> LanguageModel:
    """A GPT-2 whose every weight is known.

    A token's embedding is its own axis. The first head of the first block attends evenly and maps each city to its
    country; neither attention nor feed-forward layers do anything else, but for the layer `LOUD`: its hidden units are
    1 through their biases, and its output matrix adds `loudness` to "the", whatever the text.
    """
    config = transformers.GPT2Config(
        n_embd=WIDTH, n_inner=HIDDEN, n_layer=LAYERS, n_head=2, vocab_size=len(VOCABULARY), n_positions=CONTEXT,
        tie_word_embeddings=False, activation_function="relu",
    )  # fmt: skip
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.zero_()
            if name.endswith(("ln_1.weight", "ln_2.weight", "ln_f.weight")):
                value.fill_(1.0)
        base = model.transformer
        axes = torch.eye(len(VOCABULARY), WIDTH)
        base.wte.weight.copy_(axes)
        model.lm_head.weight.copy_(2 * axes)
        values = base.h[0].attn.c_attn.weight[:, 2 * WIDTH :]
        for place, city in enumerate(CITIES):
            values[VOCABULARY[city], place] = 1.0
            base.h[0].attn.c_proj.weight[place, token(CITIES[city])] = 1.0
        loud = base.h[LOUD].mlp
        loud.c_fc.bias.fill_(1.0)
        loud.c_proj.weight[:, token("the")] = loudness / HIDDEN
    return wrap(model, tokenizer())


DIVIDED = {"France": "blocks.0.mlp.W_in", "Spain": f"blocks.{LAYERS - 1}.mlp.W_in"}
"""The matrix of `divided` that says each country."""


def divided() -> LanguageModel:
    """The model without "the", in which behind "is" one layer says "France" and another "Spain", whatever the city.

    So each of the two helps one country's cities and is in the way of the other's.
    """
    model = spoken(0.0)
    with torch.no_grad():
        # the norm before the second makes less of "is", for what the first has said is as loud
        for (country, name), loudness in zip(DIVIDED.items(), (1.0, 4.5), strict=True):
            model.get_parameter(name)[token("is"), 0] = 1.0
            model.get_parameter(name.replace("W_in", "W_out"))[0, token(country)] = loudness
    return model
