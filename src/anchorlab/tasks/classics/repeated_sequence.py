"""A random sequence repeated over and over: predict the next token from the previous copy (induction)."""

from typing import Literal

import numpy as np
import torch
from jaxtyping import Int
from numpy.random import Generator
from pydantic import Field, model_validator
from torch import Tensor

from anchorlab.axes import TaskShape
from anchorlab.errors import SpecError
from anchorlab.tasks.batch import Answer, Batch, TraceStep
from anchorlab.tasks.classics.drawing import all_different, distinct, draw_split, side
from anchorlab.tasks.numbers import Pair
from anchorlab.tasks.registry import register_task
from anchorlab.tasks.task import Task


@register_task("classics/repeated-sequence")
class RepeatedSequence(Task):
    """The next token of a random sequence that repeats with a period drawn for each sequence.

        7 2 9 7 2 9 7 2  ->  9

    vocabulary: the number of tokens; the tokens of a period are distinct
    length: the number of positions
    periods: the shortest and the longest period; if they differ, no fixed distance of attention finds the answer

    The scored positions run from position `periods[1]` to the last position but one. One sequence in five is a test
    sequence, chosen by a hash of its tokens.
    Source: Elhage et al., A mathematical framework for transformer circuits, 2021; Olsson et al., In-context learning
    and induction heads, 2022.
    """

    family: Literal["repeated-sequence"] = "repeated-sequence"
    vocabulary: int = Field(50, ge=2, le=65_536)
    length: int = Field(32, ge=3, le=4096)
    periods: Pair = (6, 12)

    @model_validator(mode="after")
    def _fits(self) -> "RepeatedSequence":
        low, high = self.periods
        if not 1 <= low <= high <= min(self.length - 2, self.vocabulary):
            problem = f"{low} to {high} does not fit {self.length} positions and {self.vocabulary} tokens"
            raise SpecError("periods", problem, "give shorter periods")
        return self

    @property
    def shape(self) -> TaskShape:
        """Tokens in, tokens out."""
        return TaskShape("tokens", self.length, self.vocabulary, self.vocabulary)

    def sample(self, split: str, n: int, seed: int) -> Batch:
        """Draw `n` sequences."""
        whole = draw_split(self, split, n, seed, self._draw)
        positions = torch.arange(self.periods[1], self.length - 1)
        answers = whole[:, positions + 1]
        return Batch(whole, answers, answers, positions, split)

    def _draw(self, random: Generator, n: int) -> Int[np.ndarray, "batch position"]:
        low, high = self.periods
        period = random.integers(low, high + 1, (n, 1))
        tokens = distinct(random, n, high, self.vocabulary)
        return np.take_along_axis(tokens, np.arange(self.length) % period, axis=1)

    def oracle(self, inputs: Int[Tensor, "batch position"]) -> Answer:
        """Return the token after the previous copy of each scored token; the trace is for the last scored token."""
        scored = torch.arange(self.periods[1], self.length - 1)
        fits = self.split_of(inputs) >= 0
        same = (inputs[:, scored, None] == inputs[:, None, :]) & (torch.arange(self.length) < scored[:, None])
        copies = torch.where(same, torch.arange(self.length), -1).amax(dim=2)
        answers = inputs.gather(1, copies + 1)
        step = TraceStep("after the last copy", torch.where(fits, copies[:, -1] + 1, -1), answers[:, -1])
        return Answer(answers, fits.unsqueeze(1).expand(answers.shape), (step,))

    def _period(self, tokens: Int[Tensor, "batch position"]) -> Int[Tensor, "batch"]:
        """Return each sequence's shortest period in which all tokens are distinct; 0 if there is none."""
        found = torch.zeros(len(tokens), dtype=torch.int64)
        for period in range(self.periods[1], self.periods[0] - 1, -1):
            repeats = (tokens[:, period:] == tokens[:, :-period]).all(dim=1)
            found = torch.where(repeats & all_different(tokens[:, :period]), period, found)
        return found

    def split_of(self, inputs: Int[Tensor, "batch position"]) -> Int[Tensor, "batch"]:
        """Return the split by the hash of the tokens; -1 for sequences without a period."""
        return torch.where(self._period(inputs) > 0, side(inputs), -1)
