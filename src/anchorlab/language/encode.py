"""Encode texts as right-padded token ids with lengths, and the words to score after them as tokens."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Int
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.language.prompts import Prompt
from anchorlab.language.scored_words import ABSENT, only_a_space, scored_words
from anchorlab.language.start import added_before, begun_once

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class TokenisedTexts:
    """Texts as token ids, padded on the right: under a causal mask no token sees the padding behind it.

    Give this value itself to `look` and the other instruments of the lens: they read its `lengths`, so that padding
    does not count.

    Fields
        inputs: token ids
        lengths: the number of tokens of each text; the next token is predicted at position `lengths - 1`
    """

    inputs: Int[Tensor, "batch position"]
    lengths: Int[Tensor, "batch"]


@dataclass(frozen=True)
class TokenisedPrompts(TokenisedTexts):
    """Prompts as token ids, with the tokens to score after each.

    A word is scored by its tokens up to the first that distinguishes it from the other words. In `inputs`, the prompt
    is followed by the answer's tokens before its last scored one, so that one pass scores all words: a candidate is
    scored up to its first token that differs from the answer. Tokens that all words share are not scored, such as a
    space before digits.

    Fields
        following: the number of the answer's tokens that follow the prompt
        shared: the number of these tokens that all words share
        answers: the answer's last scored token; -1 without an answer, and if no token tells it from a candidate
        candidates: the last scored tokens of the wrong answers, each once; -1 pads the rows
        places: for each candidate, the number of the answer's tokens before its last scored token
        notes: one line for each word of several tokens, with those that are scored, and for each word that is not
            scored, with the reason
    """

    following: Int[Tensor, "batch"]
    shared: Int[Tensor, "batch"]
    answers: Int[Tensor, "batch"]
    candidates: Int[Tensor, "batch candidate"]
    places: Int[Tensor, "batch candidate"]
    notes: tuple[str, ...]

    def part(self, rows: Int[Tensor, "part"]) -> "TokenisedPrompts":
        """Return some of the prompts, by index, padded to the longest of these."""
        tensors = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "notes"}
        chosen = replace(self, **{name: value[rows] for name, value in tensors.items()})
        return replace(chosen, inputs=chosen.inputs[:, : int(chosen.lengths.max())])


def tokenise(
    tokenizer: "PreTrainedTokenizerBase | None",
    texts: Sequence[str],
    context: int,
    start: int | None = None,
    field: str = "texts",
    special: bool = True,
) -> TokenisedTexts:
    """Return texts as token ids, with the special tokens that the tokenizer puts before a text.

    Those that it puts behind a text are left out, since the next word would be predicted after them.

    Many models use the first token as an attention sink: their predictions hardly depend on which token it is. If the
    tokenizer adds no special token, `start` takes this place, so that the prediction after a one-word text depends on
    the word. A text that begins with these tokens itself, as a chat template may write it, does not get them twice.

    Args:
        tokenizer: a Hugging Face tokenizer
        texts: at least one text
        context: the maximum length of a sequence, in tokens
        start: an id to put before each text, such as the id of `<|endoftext|>`
        field: the name of the texts in errors
        special: whether to add these tokens

    Errors: `SpecError` without a tokenizer or texts, and for a text without tokens, with more than `context` tokens, or
    with words that the tokenizer does not know.
    """
    known = _require(tokenizer)
    if not texts:
        raise SpecError(field, "there are none", "give at least one")
    added = added_before(known) if special else []
    rows = []
    for place, text in enumerate(texts):
        ids = _ids(known, text, f"{field}[{place}]")
        if not ids:
            raise SpecError(f"{field}[{place}]", "has no tokens", "write at least one word")
        rows.append(begun_once([] if start is None else [start], begun_once(added, ids)))
        if len(rows[-1]) > context:
            problem = f"has {len(rows[-1])} tokens, but the model's context holds {context}"
            raise SpecError(f"{field}[{place}]", problem, "shorten it")
    return TokenisedTexts(_pad(rows, _padding(known)), torch.tensor([len(row) for row in rows]))


def tokenise_prompts(
    tokenizer: "PreTrainedTokenizerBase | None",
    prompts: Sequence[Prompt],
    context: int,
    start: int | None = None,
    special: bool = True,
) -> TokenisedPrompts:
    """Return prompts as token ids, with the tokens of their answers and candidates that are scored.

    An answer that is the beginning of a candidate is not scored: its probability would include the candidate's. A
    candidate is left out if it is the beginning of the answer, begins like an earlier candidate, or begins with a mere
    space.

    Errors: `SpecError` as `tokenise`, and for a word that the tokenizer does not know.
    """
    texts = tokenise(tokenizer, [prompt.text for prompt in prompts], context, start, "prompts", special)
    known = _require(tokenizer)
    words = dict.fromkeys(word for prompt in prompts for word in (prompt.answer, *prompt.candidates) if word)
    tokens = {word: tuple(_word(known, word)) for word in words}

    @cache
    def read(ids: tuple[int, ...]) -> str:
        return str(known.decode([*ids])).strip()

    scored = [scored_words(prompt, tokens, read) for prompt in prompts]
    rows: list[list[int]] = []
    for place, (row, length, one) in enumerate(zip(texts.inputs, texts.lengths.tolist(), scored, strict=True)):
        rows.append([*row[:length].tolist(), *one.following])
        if len(rows[-1]) > context:
            problem = f"has {len(rows[-1])} tokens with {len(one.following)} of its answer"
            raise SpecError(f"prompts[{place}]", f"{problem}, but the model's context holds {context}", "shorten it")
    following = torch.tensor([len(one.following) for one in scored])
    return TokenisedPrompts(
        _pad(rows, _padding(known)),
        texts.lengths + following,
        following,
        torch.tensor([one.shared for one in scored]),
        torch.tensor([one.answer for one in scored]),
        _pad([[token for _, token in one.candidates] for one in scored], ABSENT),
        _pad([[place for place, _ in one.candidates] for one in scored], 0),
        tuple(dict.fromkeys(note for one in scored for note in one.notes)),
    )


def word_tokens(
    tokenizer: "PreTrainedTokenizerBase | None", words: Sequence[str]
) -> tuple[Int[Tensor, "word"], tuple[str, ...]]:
    """Return the first token of each word as it appears inside a sentence, after another word and a space, and notes.

    The token is -1 for a mere space, since other words begin with it, too. The notes name words with such a first token
    and words of several tokens.

    Errors: `SpecError` without a tokenizer, and for a word that is empty, begins or ends with a space, or is unknown to
    the tokenizer.
    """
    known = _require(tokenizer)
    ids, notes = [], []
    for word in words:
        own = _word(known, word)
        beginning = known.decode([own[0]]).strip()
        ids.append(own[0] if beginning else ABSENT)
        if not beginning:
            notes.append(only_a_space(word))
        elif len(own) > 1:
            notes.append(f"'{word}' is {len(own)} tokens; the first, '{beginning}', is scored")
    return torch.tensor(ids, dtype=torch.int64), tuple(notes)


def windows(
    tokenizer: "PreTrainedTokenizerBase | None", text: str, length: int, context: int
) -> Int[Tensor, "batch position"]:
    """Cut a long text into consecutive pieces of `length` tokens; the remainder at the end is dropped.

    No special tokens are added and no padding is needed, so every position of the batch is ordinary text.

    Errors: `SpecError` without a tokenizer, for a length below 2 or above `context`, and for a text of fewer than
    `length` tokens.
    """
    ids = _ids(_require(tokenizer), text, "text")
    if not 2 <= length <= context:
        raise SpecError("length", f"{length} tokens", f"choose 2 to {context}, the model's context")
    if len(ids) < length:
        raise SpecError("length", f"{length} tokens, but the text has {len(ids)}", "choose fewer")
    return torch.tensor(ids).unfold(0, length, length)


def text_after(tokenizer: "PreTrainedTokenizerBase", ids: Sequence[int]) -> str:
    """Return tokens as the text that they add behind a word: some tokenizers drop a space that begins a text."""
    before = tokenizer("to", add_special_tokens=False)["input_ids"]
    return str(tokenizer.decode([*before, *ids])).removeprefix(str(tokenizer.decode(before)))


def _require(tokenizer: "PreTrainedTokenizerBase | None") -> "PreTrainedTokenizerBase":
    if tokenizer is None:
        raise SpecError("tokenizer", "the model has none", "save its files with the weights, or give token ids")
    return tokenizer


def _word(tokenizer: Any, word: str) -> list[int]:
    """Return the tokens of a word inside a sentence; tokenizers mark a word's beginning in different ways.

    Errors: as `word_tokens`.
    """
    if not word.strip() or word != word.strip():
        raise SpecError("answer", f"{word!r} is not a word", "write it without spaces around it")
    before = _ids(tokenizer, "to", "answer")
    both = _ids(tokenizer, f"to {word}", "answer")
    if both[: len(before)] != before or len(both) == len(before):
        raise SpecError("answer", f"{word!r} has no tokens of its own", "choose another word")
    return both[len(before) :]


def _ids(tokenizer: Any, text: str, field: str) -> list[int]:
    """Return the ids of a text. Errors: `SpecError` for words that the tokenizer replaces by its unknown token."""
    # not verbose: the tokenizer would warn at a limit of its own, but `context` decides
    ids: list[int] = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    unknown = tokenizer.unk_token_id
    if unknown is not None and unknown in ids and tokenizer.unk_token not in text:
        raise SpecError(field, f"{text!r} has words that the tokenizer does not know", "choose other words")
    return ids


def _padding(tokenizer: Any) -> int:
    """Return an id for the padding; any token will do, because no prediction sees the padding."""
    return next((token for token in (tokenizer.pad_token_id, tokenizer.eos_token_id) if token is not None), 0)


def _pad(rows: Sequence[Sequence[int]], filling: int) -> Int[Tensor, "batch position"]:
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[filling] * (longest - len(row))] for row in rows], dtype=torch.int64)
