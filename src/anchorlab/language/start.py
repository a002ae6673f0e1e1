"""The start token: the token that a model was trained to read at the beginning of a document."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_END_OF_TEXT = "<|endoftext|>"


def start_token(tokenizer: "PreTrainedTokenizerBase | None") -> int | None:
    """Return the id of `<|endoftext|>`, which GPT-2, Pythia and SmolLM2 read between documents; None if unknown.

    The result is also None if the tokenizer already adds special tokens. Put before a text, the token serves as the
    attention sink, a role that otherwise falls to the first word of the text.
    """
    if tokenizer is None or tokenizer("to")["input_ids"] != tokenizer("to", add_special_tokens=False)["input_ids"]:
        return None
    found = tokenizer.get_vocab().get(_END_OF_TEXT)
    return None if found is None else int(found)


def beginning(tokenizer: "PreTrainedTokenizerBase | None") -> int | None:
    """Return the id of the token to put before a sequence of token ids; None without one.

    This is the special token that the tokenizer puts before a text, such as `<bos>`, or else the `start_token`.
    """
    if tokenizer is None:
        return None
    plain, whole = tokenizer("to", add_special_tokens=False)["input_ids"], tokenizer("to")["input_ids"]
    return int(whole[0]) if whole[1 : len(plain) + 1] == plain else start_token(tokenizer)
