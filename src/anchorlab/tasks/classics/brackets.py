"""Dyck-k: balanced brackets of several kinds, nested to a bounded depth."""

from functools import partial
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy.random import Generator
from pydantic import Field, model_validator
from torch import Tensor

from anchorlab.axes import TaskShape
from anchorlab.errors import SpecError
from anchorlab.tasks.batch import Answer, Batch, TraceStep
from anchorlab.tasks.classics.drawing import draw_split, side
from anchorlab.tasks.registry import register_task
from anchorlab.tasks.task import Task

_OPENING, _CLOSING = "([{<", ")]}>"


@register_task("classics/brackets")
class Brackets(Task):
    """The bracket that may close next after each token of a Dyck-k word, or none.

    kinds: the number k of kinds; token i opens kind i, token k + i closes it
    length: the number of tokens, even; every word is balanced
    depth: the most brackets open at once in training and in the split `test`
    deeper: the same for the split `deep`, whose words all go deeper than `depth`

    Output k + i is the bracket that closes kind i; output 2k means that none is open. All positions are scored. If a
    bracket may be opened or closed, a fair coin decides. Of words no deeper than `depth`, one in five is a test word,
    chosen by a hash of its tokens.
    Baselines with the defaults: a guess from the last token alone (an opening bracket is closed, otherwise none is
    open) is right at 0.695 of the test positions; closing the last opening token, even if closed already, at 0.653.
    Source: Hewitt et al., RNNs can generate bounded hierarchical languages with optimal memory, 2020; Yao et al.,
    Self-attention networks can process bounded hierarchical languages, 2021.
    """

    family: Literal["brackets"] = "brackets"
    kinds: int = Field(2, ge=1, le=4)
    length: int = Field(32, ge=4, le=1024, multiple_of=2)
    depth: int = Field(3, ge=1, le=256)
    deeper: int = Field(6, ge=2, le=512)

    @model_validator(mode="after")
    def _fits(self) -> "Brackets":
        if not self.depth < self.deeper <= self.length // 2:
            problem = f"{self.deeper} is not above depth={self.depth} and within half the length"
            raise SpecError("deeper", problem, "choose a depth between them")
        return self

    @property
    def splits(self) -> tuple[str, ...]:
        """`train` and `test`, equally deep, and `deep`."""
        return ("train", "test", "deep")

    @property
    def shape(self) -> TaskShape:
        """The 2k brackets as inputs; the same and `none` as outputs."""
        return TaskShape("tokens", self.length, 2 * self.kinds, 2 * self.kinds + 1)

    def sample(self, split: str, n: int, seed: int) -> Batch:
        """Draw `n` balanced words."""
        draw = partial(self._draw, most=self.deeper if split == "deep" else self.depth)
        inputs = draw_split(self, split, n, seed, draw, self._split)
        answers = self._closing(inputs)
        return Batch(inputs, answers, answers, torch.arange(self.length), split)

    def _draw(self, random: Generator, n: int, most: int) -> Int[np.ndarray, "batch position"]:
        """Draw words in which at most `most` brackets are open at once."""
        coins, kinds = random.random((n, self.length)), random.integers(0, self.kinds, (n, self.length))
        words = np.empty((n, self.length), dtype=np.int64)
        stack, rows, depth = np.zeros((n, most), dtype=np.int64), np.arange(n), np.zeros(n, dtype=np.int64)
        for place in range(self.length):
            room = depth < np.minimum(most, self.length - place)  # the rest of the word has to close what is open
            opens = (depth == 0) | ((coins[:, place] < 0.5) & room)
            stack[rows[opens], depth[opens]] = kinds[opens, place]
            words[:, place] = np.where(opens, kinds[:, place], self.kinds + stack[rows, np.maximum(depth - 1, 0)])
            depth += np.where(opens, 1, -1)
        return words

    def _depths(self, tokens: Int[Tensor, "batch position"]) -> Int[Tensor, "batch position"]:
        """Return how many brackets are open after each token."""
        return torch.where(tokens < self.kinds, 1, -1).cumsum(dim=1)

    def _closing(self, tokens: Int[Tensor, "batch position"]) -> Int[Tensor, "batch position"]:
        """Return what closes the innermost open bracket, which is the last opening token of the present depth."""
        depths, opens = self._depths(tokens), tokens < self.kinds
        opened_at = torch.where(opens, depths, 0)
        places = torch.arange(tokens.shape[1])
        same = (opened_at[:, None, :] == depths[:, :, None]) & (places[None, :] <= places[:, None])
        last = torch.where(same, places, -1).amax(dim=2)
        return torch.where(depths > 0, self.kinds + tokens.gather(1, last.clamp(min=0)), 2 * self.kinds)

    def oracle(self, inputs: Int[Tensor, "batch position"]) -> Answer:
        """Return the bracket that may close next after each token; unknown for words that are not balanced."""
        answers = torch.full(inputs.shape, 2 * self.kinds)
        for row, word in enumerate(inputs.tolist()):
            stack: list[int] = []
            for place, token in enumerate(word):
                if token < self.kinds:
                    stack.append(token)
                elif stack:
                    stack.pop()
                answers[row, place] = self.kinds + stack[-1] if stack else 2 * self.kinds
        known = self._balanced(inputs)
        deepest = self._depths(inputs).argmax(dim=1)
        step = TraceStep("deepest", torch.where(known, deepest, -1), inputs.gather(1, deepest[:, None])[:, 0])
        return Answer(answers, known.unsqueeze(1).expand(inputs.shape), (step,))

    def _balanced(self, tokens: Int[Tensor, "batch position"]) -> Bool[Tensor, "batch"]:
        """Return whether every bracket is closed, by its own kind."""
        own = ((tokens >= 0) & (tokens < 2 * self.kinds)).all(dim=1)
        depths = self._depths(tokens)
        fits = (tokens < self.kinds) | (tokens == self._closing(tokens).roll(1, dims=1))
        return own & (depths >= 0).all(dim=1) & (depths[:, -1] == 0) & fits.all(dim=1)

    def split_of(self, inputs: Int[Tensor, "batch position"]) -> Int[Tensor, "batch"]:
        """Return the split by depth, then by the hash of the tokens; -1 for words that are not balanced."""
        deepest = self._depths(inputs).amax(dim=1)
        return torch.where(self._balanced(inputs) & (deepest <= self.deeper), self._split(inputs), -1)

    def _split(self, words: Int[Tensor, "batch position"]) -> Int[Tensor, "batch"]:
        return torch.where(self._depths(words).amax(dim=1) > self.depth, 2, side(words))

    def text_of(self, token: int) -> str:
        """Return the bracket, or `none`."""
        names: tuple[str, ...] = (*_OPENING[: self.kinds], *_CLOSING[: self.kinds], "none")
        return names[token]
