"""The token before a text: what a model was trained to read as the beginning of a document."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_END_OF_TEXT = "<|endoftext|>"


def start_token(tokenizer: "PreTrainedTokenizerBase | None") -> int | None:
    """Return the id of `<|endoftext|>`, which GPT-2, Pythia and SmolLM2 read between documents; None without one.

    None too for a tokenizer that begins a text with a special token by itself. In front of a text the token takes the
    place of the first one, the sink of attention, which otherwise would be the text's first word.
    """
    if tokenizer is None or tokenizer("to")["input_ids"] != tokenizer("to", add_special_tokens=False)["input_ids"]:
        return None
    found = tokenizer.get_vocab().get(_END_OF_TEXT)
    return None if found is None else int(found)


def beginning(tokenizer: "PreTrainedTokenizerBase | None") -> int | None:
    """Return the id of the token that a text of token ids begins with; None without one.

    It is the special token that the tokenizer itself puts before a text, such as `<bos>`, or else that of
    `start_token`.
    """
    if tokenizer is None:
        return None
    plain, whole = tokenizer("to", add_special_tokens=False)["input_ids"], tokenizer("to")["input_ids"]
    return int(whole[0]) if whole[1 : len(plain) + 1] == plain else start_token(tokenizer)
