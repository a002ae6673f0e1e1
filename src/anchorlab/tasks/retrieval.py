"""The minimal retrieval problem: follow chains of vectors from pair to pair."""

import math
from collections.abc import Sequence
from functools import cached_property
from itertools import product
from typing import ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.random import Generator
from pydantic import Field, model_validator
from torch import Tensor

from anchorlab.axes import TaskShape
from anchorlab.errors import SpecError
from anchorlab.rng import generator
from anchorlab.tasks.asked_steps import asked_steps, check_asked_steps
from anchorlab.tasks.numbers import Numbers, Reals
from anchorlab.tasks.registry import register_task, task_family
from anchorlab.tasks.task import Answer, Batch, Example, LossKind, Task, Token, TraceStep

_BLOCK = 2048


@register_task("retrieval/minimal")
@task_family("retrieval")
class MinimalRetrieval(Task):
    """The symbols that each query's chain of pairs leads to, every symbol a fresh normal vector.

    N chains x_0 .. x_D. Input: for step s = D down to 1 the N pairs (x_{s-1}, x_s), then the N queries x_0; the chains
    are shuffled within each step and among the queries. With N = 2, D = 2, chains A and B:

        (A1 A2) (B1 B2) (B0 B1) (A0 A1) A0 B0

    chains, steps, features: N, D and K.
    implicit_curriculum: asked for at each query: all of x_1 .. x_D, D K numbers; or x_D alone, K numbers.
    asked_steps: if given, a curriculum of these steps alone: (1, 3) asks for x_1 and x_3.
    positions: a K-dimensional position vector is appended to each symbol, 2 K inputs in all, counting each `token`, or
        each `pair` (both its members have one position, as in the paper's theory; each query has its own).
    frequencies: w of the position vector [cos(p w_1) .. cos(p w_{K/2}), sin(p w_1) ..]; none given: the rotary
        embedding's 10000^(-2i/K). The paper does not say its own.

    Every symbol is a fresh continuous draw, so a sequence recurs with probability zero and the splits differ by their
    streams alone: no property of a sequence tells them apart, and `separated` is false.
    Source: stacked attention heads paper, section 6.
    """

    family: Literal["retrieval"] = "retrieval"
    chains: int = Field(4, ge=1, le=256)
    steps: int = Field(3, ge=1, le=256)
    features: int = Field(4, ge=2, le=1024)
    implicit_curriculum: bool = True
    asked_steps: Numbers = ()
    positions: Literal["token", "pair"] = "token"
    frequencies: Reals = ()

    separated: ClassVar[bool] = False
    loss: ClassVar[LossKind] = "mean_squared_error"

    @model_validator(mode="after")
    def _fits(self) -> "MinimalRetrieval":
        if self.features % 2:
            raise SpecError("features", f"{self.features} is odd", "position vectors are pairs of cosine and sine")
        check_asked_steps(self.asked_steps, self.steps, self.implicit_curriculum)
        if self.frequencies and len(self.frequencies) != self.features // 2:
            raise SpecError("frequencies", f"there are {len(self.frequencies)}", f"give {self.features // 2}, or none")
        if not all(math.isfinite(frequency) for frequency in self.frequencies):
            raise SpecError("frequencies", f"{list(self.frequencies)} are not all finite", "give finite numbers")
        if self._length > 65_536:
            raise SpecError("steps", f"{self.chains} chains make {self._length} positions", "use at most 65536")
        return self

    @property
    def _length(self) -> int:
        return self.chains * (2 * self.steps + 1)

    @property
    def shape(self) -> TaskShape:
        """Vectors in, vectors out."""
        return TaskShape("vectors", self._length, 2 * self.features, self.features * len(self.asked))

    @property
    def asked(self) -> tuple[int, ...]:
        """The steps of a chain that are asked for."""
        return asked_steps(self.asked_steps, self.steps, self.implicit_curriculum)

    @cached_property
    def position_vectors(self) -> Float[np.ndarray, "position feature"]:
        """The vector appended to the symbol at each position."""
        pairs = 2 * self.chains * self.steps
        index = np.arange(self._length)
        if self.positions == "pair":
            index = np.where(index < pairs, index // 2, index - pairs // 2)
        rotary = 10_000.0 ** (-2 * np.arange(self.features // 2) / self.features)
        angle = index[:, None] * (np.array(self.frequencies) if self.frequencies else rotary)
        return np.concatenate([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32)

    def sample(self, split: str, n: int, seed: int) -> Batch:
        """`n` fresh sequences.

        Latents: `symbols` `[batch chain step feature]`, steps 0..D; `order` `[batch step chain]`: the chain that stands
        at each place, for the queries (step 0) and the pairs of steps 1..D.
        Errors: `SpecError` for an unknown split.
        """
        self.check_draw(split, n)
        random = generator(seed, "sequences", split)
        N, D, K = self.chains, self.steps, self.features
        symbols = np.empty((n, N, D + 1, K), dtype=np.float32)
        order = np.empty((n, D + 1, N), dtype=np.int64)
        inputs = torch.empty((n, self._length, 2 * K), dtype=torch.float32)
        targets = np.empty((n, N, self.shape.output_size), dtype=np.float32)
        for start in range(0, n, _BLOCK):
            rows = slice(start, min(start + _BLOCK, n))
            self._draw(random, symbols[rows], order[rows], inputs.numpy()[rows], targets[rows])
        answers = torch.from_numpy(targets)
        return Batch(
            inputs=inputs,
            targets=answers,
            answers=answers,
            positions=torch.arange(self._length - N, self._length),
            split=split,
            latents={"symbols": torch.from_numpy(symbols), "order": torch.from_numpy(order)},
        )

    def _draw(
        self,
        random: Generator,
        symbols: Float[np.ndarray, "batch chain step feature"],
        order: Int[np.ndarray, "batch step chain"],
        inputs: Float[np.ndarray, "batch position both"],
        targets: Float[np.ndarray, "batch chain output"],
    ) -> None:
        N, D, K = self.chains, self.steps, self.features
        symbols[:] = random.standard_normal(symbols.shape, dtype=np.float32)
        order[:] = np.argsort(random.random(order.shape, dtype=np.float64), axis=2)
        # The index of every position's symbol among the chains' symbols x_s, laid out [chain, step].
        index = np.empty((len(symbols), self._length), dtype=np.int64)
        pairs = index[:, : 2 * N * D].reshape(-1, D, N, 2)
        descending = np.arange(D, 0, -1)
        pairs[..., 1] = order[:, descending] * (D + 1) + descending[:, None]
        pairs[..., 0] = pairs[..., 1] - 1
        index[:, 2 * N * D :] = order[:, 0] * (D + 1)
        index += np.arange(len(symbols))[:, None] * (N * (D + 1))
        flat = symbols.reshape(-1, K)
        inputs[..., :K] = flat[index]
        inputs[..., K:] = self.position_vectors
        asked = index[:, 2 * N * D :, None] + np.array(self.asked)
        targets[:] = flat[asked].reshape(targets.shape)

    def _follow(
        self, symbols: Float[Tensor, "batch position feature"]
    ) -> tuple[Int[Tensor, "step batch query"], Bool[Tensor, "batch query"]]:
        """Where the second member of the pair matched at each step stands, and whether each match was the only one."""
        pairs = 2 * self.chains * self.steps
        first = symbols[:, 0:pairs:2]
        current = symbols[:, pairs:]
        found, known = [], torch.ones(current.shape[:2], dtype=torch.bool)
        for _ in range(self.steps):
            matches = (current[:, :, None, :] == first[:, None, :, :]).all(dim=-1)
            known &= matches.sum(dim=-1) == 1
            at = matches.to(torch.uint8).argmax(dim=-1) * 2 + 1
            found.append(at)
            current = symbols.gather(1, at[..., None].expand(-1, -1, self.features))
        return torch.stack(found), known

    def oracle(self, inputs: Float[Tensor, "batch position both"]) -> Answer:
        """Follows each query by exact equality of symbols; known where every step has just one match.

        The trace has a step for each query and each step of its chain: where the symbol retrieved was read.
        """
        symbols = inputs.cpu()[..., : self.features]
        if inputs.shape[1] != self._length:
            raise SpecError("inputs", f"have {inputs.shape[1]} positions", f"give {self._length}")
        found, known = self._follow(symbols)
        values = [symbols.gather(1, at[..., None].expand(-1, -1, self.features)) for at in found]
        answers = torch.cat([values[step - 1] for step in self.asked], dim=-1)
        trace = tuple(
            TraceStep(
                f"query {query} step {step + 1}",
                torch.where(known[:, query], found[step, :, query], -1),
                values[step][:, query],
            )
            for query, step in product(range(self.chains), range(self.steps))
        )
        return Answer(answers, known, trace)

    def roles(self, batch: Batch) -> dict[str, Int[Tensor, "batch chain"]]:
        """Both members of each pair of a query's chain, such as `x2 of pair 2`, and `query x0`, `[batch chain]`."""
        found, known = self._follow(batch.inputs.cpu()[..., : self.features])
        roles = {}
        for step in range(self.steps, 0, -1):
            second = found[step - 1].where(known, -1)
            roles[f"x{step - 1} of pair {step}"] = torch.where(known, second - 1, -1)
            roles[f"x{step} of pair {step}"] = second
        return roles | {"query x0": batch.positions.expand(len(batch), -1)}

    def split_of(self, inputs: Float[Tensor, "batch position both"]) -> Int[Tensor, "batch"]:
        """0 for a well-formed sequence, which either split could hold (see above), -1 for any other."""
        if inputs.shape[1:] != (self._length, 2 * self.features):
            return torch.full((inputs.shape[0],), -1)
        values = inputs.cpu()
        _, known = self._follow(values[..., : self.features])
        placed = (values[..., self.features :] == torch.from_numpy(self.position_vectors)).all(dim=-1).all(dim=-1)
        return torch.where(known.all(dim=-1) & placed, 0, -1)

    def metrics(self, outputs: Float[Tensor, "batch scored output"], batch: Batch) -> dict[str, Tensor]:
        """`partial_s`: the mean squared error of x_s over its K coordinates, for each step s asked for."""
        squares = (outputs - batch.answers).square()
        errors = squares.reshape(*squares.shape[:-1], len(self.asked), self.features).mean(dim=-1)
        return {f"partial_{step}": errors[..., index] for index, step in enumerate(self.asked)}

    def render(self, inputs: Float[Tensor, "batch position both"]) -> Sequence[Example]:
        """The sequences with a letter for each distinct symbol, in order of appearance from the queries on."""
        found, known = self._follow(inputs.cpu()[..., : self.features])
        sides = self.split_of(inputs).tolist()
        return [
            self._render(inputs[row, :, : self.features].tolist(), found[:, row].T.tolist(), known[row].tolist(), side)
            for row, side in enumerate(sides)
        ]

    def _render(self, symbols: list[list[float]], found: list[list[int]], known: list[bool], side: int) -> Example:
        pairs = len(symbols) - self.chains
        order = [place for query, path in enumerate(found) for place in (pairs + query, *path)] + list(range(pairs))
        names: dict[tuple[float, ...], str] = {}
        for place in order:
            names.setdefault(tuple(symbols[place]), letters(len(names)))
        named = [names[tuple(symbol)] for symbol in symbols]
        roles = ["query" if place >= pairs else ("second" if place % 2 else "first") for place in range(len(symbols))]
        trace, answers = [], []
        for query, path in enumerate(found):
            reads = [f"{named[place]} at {place}" for place in path]
            trace.append(" -> ".join([f"query {named[pairs + query]}", *reads]) if known[query] else "no single match")
            answers.append("".join(named[path[step - 1]] for step in self.asked) if known[query] else "unknown")
        return Example(
            tuple(Token(name, role) for name, role in zip(named, roles, strict=True)),
            tuple(trace),
            ", ".join(answers),
            self.splits[side] if side >= 0 else "nowhere",
        )


def letters(index: int) -> str:
    """A, B, .. Z, AA, AB ..: the name of the symbol with this index from 0."""
    name = ""
    while index >= 0:
        name = chr(ord("A") + index % 26) + name
        index = index // 26 - 1
    return name
