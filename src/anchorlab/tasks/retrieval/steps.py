"""Follow one chain of pairs in random order; the differences within pairs separate training from test."""

from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy.random import Generator
from pydantic import Field, model_validator
from torch import Tensor

from anchorlab.axes import TaskShape
from anchorlab.errors import SpecError
from anchorlab.rng import generator
from anchorlab.tasks.batch import Answer, Batch, TraceStep
from anchorlab.tasks.classics.drawing import all_different
from anchorlab.tasks.numbers import Numbers
from anchorlab.tasks.registry import register_task
from anchorlab.tasks.task import Task


@register_task("retrieval/steps")
class StepRetrieval(Task):
    """The symbol D steps after the last token, with the steps given as pairs in random order.

    Each sequence draws N chains of symbols x_0 .. x_D, all different. The input holds the N D pairs (x_{s-1}, x_s) in
    random order, then the start x_0 of one chain, whose x_D is the answer. With N = 2, D = 2, chains A and B:

        B1 B2 A0 A1 B0 B1 A1 A2 B0   ->   B2

    chains, steps: the numbers N of chains and D of steps
    symbols: the number of symbols, which are the tokens 0 .. symbols - 1
    modulus, training: a pair belongs to training if the difference of its symbols (second minus first) modulo
        `modulus` is in `training`, otherwise to the test; a sequence has pairs of one split only

    No pair of symbols occurs in both splits. Each symbol is drawn uniformly from the unused symbols that may follow.
    Source: Wang et al., The buffer mechanism for multi-step information reasoning in language models, 2024.
    """

    family: Literal["step-retrieval"] = "step-retrieval"
    chains: int = Field(3, ge=1, le=64)
    steps: int = Field(2, ge=1, le=64)
    symbols: int = Field(81, ge=2, le=4096)
    modulus: int = Field(5, ge=2, le=256)
    training: Numbers = (0, 1, 4)

    @model_validator(mode="after")
    def _fits(self) -> "StepRetrieval":
        chosen = set(self.training)
        if len(chosen) < len(self.training) or not all(0 <= one < self.modulus for one in chosen):
            problem = f"{list(self.training)} are not different remainders modulo {self.modulus}"
            raise SpecError("training", problem, f"give some of 0 .. {self.modulus - 1}")
        if not 0 < len(chosen) < self.modulus:
            raise SpecError("training", f"{list(self.training)} leaves a split empty", "leave some remainders out")
        needed = self.chains * (self.steps + 1)
        fewest = self.symbols // self.modulus * min(len(chosen), self.modulus - len(chosen))
        if needed > fewest:
            problem = f"{self.symbols} leave as few as {fewest} for a pair, and a sequence has {needed}"
            raise SpecError("symbols", problem, "add some")
        return self

    @property
    def shape(self) -> TaskShape:
        """Symbols in, symbols out."""
        return TaskShape("tokens", 2 * self.chains * self.steps + 1, self.symbols, self.symbols)

    def sample(self, split: str, n: int, seed: int) -> Batch:
        """Draw `n` sequences. Latents: `symbols` `[batch value chain]`, x_0 to x_D; `queries` `[batch 1]`, a chain."""
        self.check_draw(split, n, seed)
        random = generator(seed, "sequences", split)
        symbols = self._draw(random, n, self.splits.index(split))
        queries = random.integers(self.chains, size=(n, 1))
        pairs = np.stack([symbols[:, :-1], symbols[:, 1:]], axis=-1).reshape(n, self.chains * self.steps, 2)
        inputs = np.empty((n, self.shape.length), dtype=np.int64)
        order = random.permuted(np.tile(np.arange(pairs.shape[1]), (n, 1)), axis=1)
        inputs[:, :-1] = np.take_along_axis(pairs, order[:, :, None], axis=1).reshape(n, 2 * self.chains * self.steps)
        inputs[:, -1:] = np.take_along_axis(symbols[:, 0], queries, axis=1)
        answers = torch.from_numpy(np.take_along_axis(symbols[:, -1], queries, axis=1))
        positions = torch.tensor([self.shape.length - 1])
        latents = {"symbols": torch.from_numpy(symbols), "queries": torch.from_numpy(queries)}
        return Batch(torch.from_numpy(inputs), answers, answers, positions, split, latents=latents)

    def _draw(self, random: Generator, n: int, side: int) -> Int[np.ndarray, "batch value chain"]:
        """Draw the symbols of all chains, one after another, so that all pairs belong to one split, `side`."""
        every, row = np.arange(self.symbols), np.arange(n)
        sides = self._sides().numpy()
        free = np.ones((n, self.symbols), dtype=bool)
        found = np.empty((n, self.steps + 1, self.chains), dtype=np.int64)
        for chain in range(self.chains):
            fits = free
            for step in range(self.steps + 1):
                found[:, step, chain] = new = np.where(fits, random.random(fits.shape), -1.0).argmax(axis=1)
                free[row, new] = False
                fits = free & (sides[(every - new[:, None]) % self.modulus] == side)
        return found

    def _sides(self) -> Int[Tensor, "remainder"]:
        """Return the split of each remainder: 0 for training, 1 for the test."""
        return torch.tensor([int(one not in self.training) for one in range(self.modulus)])

    def oracle(self, inputs: Int[Tensor, "batch position"]) -> Answer:
        """Return the answers, found by following the last token from pair to pair.

        Known for well-formed sequences, also if their pairs belong to both splits. The trace has an entry for each
        step: the position and the symbol read.
        """
        fits, trace, at = self._well_formed(inputs), [], inputs[:, -1]
        for step in range(self.steps):
            place = 2 * (inputs[:, :-1:2] == at.unsqueeze(1)).long().argmax(dim=1) + 1
            at = inputs.gather(1, place.unsqueeze(1)).squeeze(1)
            trace.append(TraceStep(f"step {step + 1}", torch.where(fits, place, -1), at))
        return Answer(at.unsqueeze(1), fits.unsqueeze(1), tuple(trace))

    def _well_formed(self, tokens: Int[Tensor, "batch position"]) -> Bool[Tensor, "batch"]:
        """Return whether the pairs are N chains of D steps and the last token begins a chain."""
        first, second, last = tokens[:, :-1:2], tokens[:, 1:-1:2], tokens[:, -1:]
        follows = second.unsqueeze(2) == first.unsqueeze(1)  # [batch pair next]
        begins = ~follows.any(dim=1)
        within = begins  # the pairs at one depth: there must be one for each chain
        right = all_different(first) & all_different(second) & (begins.sum(dim=1) == self.chains)
        for _ in range(self.steps - 1):
            within = (within.unsqueeze(2) & follows).any(dim=1)
            right &= within.sum(dim=1) == self.chains
        inside = ((tokens >= 0) & (tokens < self.symbols)).all(dim=1)
        return right & inside & (begins & (first == last)).any(dim=1)

    def split_of(self, inputs: Int[Tensor, "batch position"]) -> Int[Tensor, "batch"]:
        """Return the split of a sequence's pairs; -1 for pairs of both splits or a sequence that is not well-formed."""
        sides = self._sides()[(inputs[:, 1:-1:2] - inputs[:, :-1:2]) % self.modulus]
        one = (sides == sides[:, :1]).all(dim=1) & self._well_formed(inputs)
        return torch.where(one, sides[:, 0], -1)
