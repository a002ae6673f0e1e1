"""Pairs of texts that differ in one word, each with its next word, for methods that compare two forward passes."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING

import torch
from jaxtyping import Int
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.language.encode import TokenisedTexts, tokenise
from anchorlab.language.repeated import repeated_tokens
from anchorlab.language.start import beginning
from anchorlab.rng import generator

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

NAMES = (
    "Anna", "Ben", "Carl", "Clara", "David", "Emma", "Frank", "Grace", "Henry", "Jack", "Jane", "John", "Kate", "Laura",
    "Lucy", "Mark", "Mary", "Paul", "Peter", "Rose", "Ruth", "Sarah", "Simon", "Tom",
)  # fmt: skip
SENTENCES = (
    "After {a} and {b} cleaned the kitchen, {s} handed the broom to",
    "While {a} and {b} waited for the train, {s} read the letter to",
    "Since {a} and {b} shared a garden, {s} offered the tomatoes to",
    "Then {a} and {b} met at the harbour, and {s} lent the boat to",
    "Before {a} and {b} left the library, {s} returned the key to",
    "As {a} and {b} walked along the river, {s} showed the map to",
)


@dataclass(frozen=True)
class TextPairs:
    """Clean texts and their corrupted partners of the same lengths, with the token that follows each.

    Give the fields to `patch`, `score_edges` and others: `score_edges(model, *pairs)`.
    """

    clean: TokenisedTexts
    corrupted: TokenisedTexts
    answers: Int[Tensor, "batch 1"]
    corrupted_answers: Int[Tensor, "batch 1"]

    def __iter__(self) -> Iterator[TokenisedTexts | Int[Tensor, "batch 1"]]:
        return iter((self.clean, self.corrupted, self.answers, self.corrupted_answers))

    def part(self, rows: slice) -> "TextPairs":
        """Return some of the pairs."""
        clean, corrupted = (TokenisedTexts(one.inputs[rows], one.lengths[rows]) for one in (self.clean, self.corrupted))
        return TextPairs(clean, corrupted, self.answers[rows], self.corrupted_answers[rows])


def indirect_objects(tokenizer: "PreTrainedTokenizerBase", count: int, seed: int = 0) -> TextPairs:
    """Draw sentences in which one of two people gives something to the other, whose name is the next word.

    The corrupted text lets the other person give: `After Anna and Ben cleaned the kitchen, Ben handed the broom to` is
    followed by Anna, and with `Anna handed` by Ben. Either person is named first in half of all texts.

    Both names have equally many tokens, and so have both texts. The answers are the first tokens in which names differ.

    Source: Wang et al., 2023, arXiv 2211.00593, section 2 and appendix A (the form; names and sentences are our own).
    """
    begun = tokenizer("to", add_special_tokens=False)["input_ids"]
    tokens = {name: tokenizer(f"to {name}", add_special_tokens=False)["input_ids"][len(begun) :] for name in NAMES}
    # a tokenizer of bytes, for example, gives all names the same first token, a space
    first = next(at for at in range(9) if len({ids[at] for ids in tokens.values()}) > 1)
    couples = [
        (a, b)
        for a, b in permutations(NAMES, 2)
        if len(tokens[a]) == len(tokens[b]) and tokens[a][first] != tokens[b][first]
    ]
    random = generator(seed, "language", "indirect objects")
    texts: tuple[list[str], list[str]] = ([], [])
    answers = []
    for _ in range(count):
        a, b = couples[int(random.integers(len(couples)))]
        giver, other = (a, b) if random.integers(2) else (b, a)
        sentence = SENTENCES[int(random.integers(len(SENTENCES)))]
        for one, subject in zip(texts, (giver, other), strict=True):
            one.append(sentence.format(a=a, b=b, s=subject))
        answers.append([tokens[other][first], tokens[giver][first]])
    clean, corrupted = (tokenise(tokenizer, one, 4096, beginning(tokenizer)) for one in texts)
    both = torch.tensor(answers)
    return TextPairs(clean, corrupted, both[:, :1], both[:, 1:])


def repetitions(tokenizer: "PreTrainedTokenizerBase", count: int, half: int = 12, seed: int = 0) -> TextPairs:
    """Draw random tokens, then repeat some of them from the start, so that only the repetition predicts the next token.

    `x_1 .. x_half x_1 .. x_j` is followed by `x_(j+1)`, with j = half / 2. The corrupted text has another token in the
    place of the first `x_(j+1)`.

    Errors: `SpecError` for `half` below 2, with which nothing is repeated.
    """
    if half < 2:
        raise SpecError("half", f"{half} tokens, of which none is repeated", "choose at least 2")
    start, middle = beginning(tokenizer), half // 2
    excluded = tokenizer.all_special_ids
    drawn = repeated_tokens(len(tokenizer), count, half + 1, seed, excluded, start)
    begun = int(start is not None)
    clean = torch.cat([drawn[:, : begun + half], drawn[:, begun : begun + middle]], dim=1)
    corrupted, other, place = clean.clone(), drawn[:, begun + half], begun + middle
    corrupted[:, place] = other
    lengths = torch.full((count,), clean.shape[1])
    return TextPairs(
        TokenisedTexts(clean, lengths), TokenisedTexts(corrupted, lengths), clean[:, place, None], other[:, None]
    )
