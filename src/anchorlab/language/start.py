"""The start token: the token that a model was trained to read at the beginning of a document."""

from collections.abc import Sequence
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
    before = added_before(tokenizer)
    return before[0] if len(before) == 1 else start_token(tokenizer)


def added_before(tokenizer: "PreTrainedTokenizerBase") -> list[int]:
    """Return the ids of the special tokens that a tokenizer puts before a text."""
    plain, whole = tokenizer("to", add_special_tokens=False)["input_ids"], tokenizer("to")["input_ids"]
    for count in range(len(whole) - len(plain) + 1):
        if whole[count : count + len(plain)] == plain:
            return [int(token) for token in whole[:count]]
    return []


def begun_once(before: Sequence[int], ids: Sequence[int]) -> list[int]:
    """Return `ids` with `before` in front; ids that already begin with `before` are returned as they are.

    A text from a chat template may contain the start token itself, and models are not trained on two in a row.
    """
    return [*ids] if before and [*ids[: len(before)]] == [*before] else [*before, *ids]
