"""Multi-query associative recall: key-value pairs first, then the keys again as queries for their values."""

from typing import ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Int
from pydantic import Field, model_validator
from torch import Tensor

from anchorlab.axes import TaskShape
from anchorlab.errors import SpecError
from anchorlab.rng import generator
from anchorlab.tasks.batch import Answer, Batch, TraceStep
from anchorlab.tasks.classics.drawing import all_different, distinct
from anchorlab.tasks.registry import register_task
from anchorlab.tasks.task import Task


@register_task("classics/associative-recall")
class AssociativeRecall(Task):
    """The value paired with each key that is repeated after several key-value pairs.

        k1 v1 k2 v2 . . k2 . k1 .   ->   v2 at the second k2, v1 at the second k1

    pairs: the number D of pairs, which fill the first 2 D positions; keys and values of a sequence are distinct
    length: the number of positions; every key is repeated once after the pairs, and blanks (token 0) fill the rest
    vocabulary: the number of keys, and of values; keys are the tokens 1 .. n, values n + 1 .. 2n
    power: how soon keys are repeated; a distance d from the end of the pairs has weight d^(power - 1)

    The keys' second occurrences are scored, in the order of the sequence. Both splits have the same distribution and
    differ in their random streams: `separated` is false.
    Source: Arora et al., Zoology: measuring and improving recall in efficient language models, 2023, multi-query
    associative recall. In the authors' code queries follow the pairs at even distances, and random tokens may replace
    the blanks.
    """

    family: Literal["associative-recall"] = "associative-recall"
    pairs: int = Field(4, ge=1, le=512)
    length: int = Field(32, ge=3, le=4096)
    vocabulary: int = Field(64, ge=2, le=65_536)
    power: float = Field(0.01, gt=0, le=1)

    separated: ClassVar[bool] = False

    @model_validator(mode="after")
    def _fits(self) -> "AssociativeRecall":
        if 3 * self.pairs > self.length:
            problem = f"{self.length} positions do not hold {self.pairs} pairs and their queries"
            raise SpecError("length", problem, f"give {3 * self.pairs} or more")
        if self.pairs > self.vocabulary:
            raise SpecError("vocabulary", f"{self.vocabulary} keys are fewer than {self.pairs} pairs", "give more")
        return self

    @property
    def shape(self) -> TaskShape:
        """Blanks, keys and values, in and out."""
        size = 2 * self.vocabulary + 1
        return TaskShape("tokens", self.length, size, size)

    def sample(self, split: str, n: int, seed: int) -> Batch:
        """Draw `n` sequences. Latents: `keys` and `values`, `[batch pair]`."""
        self.check_draw(split, n, seed)
        random, D, first = generator(seed, "sequences", split), self.pairs, 2 * self.pairs
        keys = distinct(random, n, D, self.vocabulary) + 1
        values = distinct(random, n, D, self.vocabulary) + self.vocabulary + 1
        weights = np.arange(1, self.length - first + 1) ** (self.power - 1.0)
        # the D smallest of exponential variables over weights are a draw without replacement by weight
        places = np.argsort(random.exponential(size=(n, len(weights))) / weights, axis=1)[:, :D] + first
        inputs = np.zeros((n, self.length), dtype=np.int64)
        inputs[:, 0:first:2], inputs[:, 1:first:2] = keys, values
        np.put_along_axis(inputs, places, keys, axis=1)
        order = np.argsort(places, axis=1)
        answers, asked = (torch.from_numpy(np.take_along_axis(each, order, axis=1)) for each in (values, places))
        latents = {"keys": torch.from_numpy(keys), "values": torch.from_numpy(values)}
        return Batch(torch.from_numpy(inputs), answers, answers, asked, split, latents=latents)

    def oracle(self, inputs: Int[Tensor, "batch position"]) -> Answer:
        """Return the token after each key's first occurrence; unknown unless every key occurs exactly twice.

        The trace has a step for each query: the position of the value it asks for.
        """
        first = 2 * self.pairs
        keys, values, rest = inputs[:, 0:first:2], inputs[:, 1:first:2], inputs[:, first:]
        fits = self._distinct(keys, 1) & self._distinct(values, self.vocabulary + 1)
        asked = rest != 0
        fits &= asked.sum(dim=1) == self.pairs
        order = torch.where(asked, torch.arange(self.length - first), self.length).argsort(dim=1)
        same = rest.gather(1, order[:, : self.pairs])[:, :, None] == keys[:, None, :]
        fits &= same.any(dim=2).all(dim=1) & same.any(dim=1).all(dim=1)
        places = 2 * same.long().argmax(dim=2) + 1
        answers = inputs.gather(1, places)
        trace = tuple(
            TraceStep(f"value {query + 1}", torch.where(fits, places[:, query], -1), answers[:, query])
            for query in range(self.pairs)
        )
        return Answer(answers, fits.unsqueeze(1).expand(answers.shape), trace)

    def _distinct(self, found: Int[Tensor, "batch pair"], low: int) -> Tensor:
        """Return whether the tokens are distinct and lie in the range from `low` on."""
        return ((found >= low) & (found < low + self.vocabulary)).all(dim=1) & all_different(found)

    def text_of(self, token: int) -> str:
        """Return `k3` for the third key, `v3` for the third value, `.` for a blank."""
        if token == 0:
            return "."
        return f"k{token}" if token <= self.vocabulary else f"v{token - self.vocabulary}"
