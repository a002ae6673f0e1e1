"""The minimal retrieval problem: follow chains of vectors from pair to pair, or any graph of steps."""

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import product
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.random import Generator
from pydantic import Field, model_serializer, model_validator
from torch import Tensor

from anchorlab.axes import TaskShape
from anchorlab.errors import SpecError
from anchorlab.rng import generator
from anchorlab.tasks.batch import Answer, Batch, Example, Token, TraceStep
from anchorlab.tasks.metrics import LossKind
from anchorlab.tasks.numbers import Lists, Numbers, Reals
from anchorlab.tasks.registry import register_task, task_family
from anchorlab.tasks.retrieval.asked_steps import asked_steps, check_asked_steps
from anchorlab.tasks.retrieval.graph import StepGraph
from anchorlab.tasks.task import Task

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
        each `pair` (both its members have one position, as in the paper's theory; each query has its own). A record of
        more than two symbols and a query of several count as one too.
    frequencies: w of the position vector [cos(p w_1) .. cos(p w_{K/2}), sin(p w_1) ..]; none given: the rotary
        embedding's 10000^(-2i/K). The paper does not say its own.
    parents: what each step depends on, in place of the chain 0; 1; 2; ..: numbers of values, the query's symbols first
        (0 .. roots - 1), then the steps'. 0; 0; 1,2 is the conditional retrieval of section 3.1, `xyz ay ax a`: z
        follows x and y, which both follow a. A step with k parents has a record for all N^k combinations of chains,
        the value of a mixed one being a symbol of its own, so that no parent alone tells it; unless a later
        step depends on this one, where the chains' own values stand again and those of mixed records do not.
    roots: how many symbols a query has; it is asked at its last.

    Every symbol is a fresh continuous draw, so a sequence recurs with probability zero and the splits differ by their
    streams alone: no property of a sequence tells them apart, and `separated` is false.
    Source: stacked attention heads paper, sections 3.1 and 6.
    """

    family: Literal["retrieval"] = "retrieval"
    chains: int = Field(4, ge=1, le=256)
    steps: int = Field(3, ge=1, le=256)
    features: int = Field(4, ge=2, le=1024)
    implicit_curriculum: bool = True
    asked_steps: Numbers = ()
    positions: Literal["token", "pair"] = "token"
    frequencies: Reals = ()
    parents: Lists = ()
    roots: int = Field(1, ge=1, le=16)

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
        _ = self._graph  # refuses a graph that is none
        return self

    @model_serializer(mode="wrap")
    def _written(self, write: Callable[["MinimalRetrieval"], dict[str, Any]]) -> dict[str, Any]:
        # A chain has no graph in its specification: runs are addressed by it, and those of chains came first.
        written = write(self)
        return written if self.parents else {key: written[key] for key in written if key not in ("parents", "roots")}

    @cached_property
    def _graph(self) -> StepGraph:
        return StepGraph(self.chains, self.steps, self.roots, self.parents)

    @property
    def shape(self) -> TaskShape:
        """Vectors in, vectors out."""
        length = self._graph.length + self._graph.asking
        return TaskShape("vectors", length, 2 * self.features, self.features * len(self.asked))

    @property
    def asked(self) -> tuple[int, ...]:
        """The steps that are asked for, counted from 1."""
        return asked_steps(self.asked_steps, self.steps, self.implicit_curriculum)

    @cached_property
    def position_vectors(self) -> Float[np.ndarray, "position feature"]:
        """The vector appended to the symbol at each position."""
        index = np.arange(self.shape.length)
        if self.positions == "pair":
            sizes = [np.full(len(block.ids), block.ids.shape[1]) for block in reversed(self._graph.blocks)]
            together = np.concatenate([*sizes, np.full(self.chains, self.roots)])
            index = np.repeat(np.arange(len(together)), together)
        rotary = 10_000.0 ** (-2 * np.arange(self.features // 2) / self.features)
        angle = index[:, None] * (np.array(self.frequencies) if self.frequencies else rotary)
        return np.concatenate([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32)

    def sample(self, split: str, n: int, seed: int) -> Batch:
        """`n` fresh sequences; a query is asked at its last symbol.

        Latents: `symbols` `[batch chain value feature]`, of a chain x_0 .. x_D, of a graph as numbered in `parents`;
        `order` `[batch step record]`: the chain of the query at each place (step 0), and which record of steps 1..D
        stands there, of a step with one parent the chain's; -1 after the last.
        Errors: `SpecError` for an unknown split.
        """
        self.check_draw(split, n)
        random = generator(seed, "sequences", split)
        records, K = self._graph, self.features
        symbols = np.empty((n, records.symbols, K), dtype=np.float32)
        order = np.full((n, self.steps + 1, max(self._counts)), -1)
        inputs = torch.empty((n, self.shape.length, 2 * K), dtype=torch.float32)
        targets = np.empty((n, self.chains, self.shape.output_size), dtype=np.float32)
        for start in range(0, n, _BLOCK):
            rows = slice(start, min(start + _BLOCK, n))
            self._draw(random, symbols[rows], order[rows], inputs.numpy()[rows], targets[rows])
        answers = torch.from_numpy(targets)
        own = symbols[:, : self.chains * records.values].reshape(n, self.chains, records.values, K)
        return Batch(
            inputs=inputs,
            targets=answers,
            answers=answers,
            positions=records.query_places(self.shape.length)[:, -1],
            split=split,
            latents={"symbols": torch.from_numpy(own), "order": torch.from_numpy(order)},
        )

    @property
    def _counts(self) -> list[int]:
        """How many queries there are, then how many records of each step."""
        return [self.chains, *(len(block.ids) for block in self._graph.blocks)]

    def _draw(
        self,
        random: Generator,
        symbols: Float[np.ndarray, "batch symbol feature"],
        order: Int[np.ndarray, "batch step record"],
        inputs: Float[np.ndarray, "batch position both"],
        targets: Float[np.ndarray, "batch chain output"],
    ) -> None:
        N, V, K = self.chains, self._graph.values, self.features
        symbols[:] = random.standard_normal(symbols.shape, dtype=np.float32)
        draws = np.split(random.random((len(symbols), sum(self._counts))), np.cumsum(self._counts)[:-1], axis=1)
        orders = [np.argsort(draw, axis=1) for draw in draws]
        for step, of_step in enumerate(orders):
            order[:, step, : of_step.shape[1]] = of_step
        # Chains are drawn one after the other, [chain value], and numbered value by value.
        drawn = np.concatenate([np.arange(N * V).reshape(N, V).T.ravel(), np.arange(N * V, self._graph.symbols)])
        first = np.arange(len(symbols))[:, None] * self._graph.symbols
        flat = symbols.reshape(-1, K)
        inputs[..., :K] = flat[drawn[self._graph.lay_out(orders[1:], orders[0])] + first]
        inputs[..., K:] = self.position_vectors
        last_root = orders[0] * V + self.roots - 1 + first
        targets[:] = flat[last_root[:, :, None] + np.array(self.asked)].reshape(targets.shape)

    def oracle(self, inputs: Float[Tensor, "batch position both"]) -> Answer:
        """Follows each query by exact equality of symbols; known where every step has just one match.

        The trace has a step for each query and each step: where the symbol retrieved was read.
        """
        if inputs.shape[1] != self.shape.length:
            raise SpecError("inputs", f"have {inputs.shape[1]} positions", f"give {self.shape.length}")
        symbols = inputs.cpu()[..., : self.features]
        _, found, known = self._graph.follow(_numbered(symbols))
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
        """Every symbol of the records that a query leads to, such as `x2 of pair 2`, and `query x0`."""
        numbers = _numbered(batch.inputs.cpu()[..., : self.features])
        return self._graph.roles(numbers) | self._graph.query_roles(numbers)

    def split_of(self, inputs: Float[Tensor, "batch position both"]) -> Int[Tensor, "batch"]:
        """0 for a well-formed sequence, which either split could hold (see above), -1 for any other."""
        if inputs.shape[1:] != (self.shape.length, 2 * self.features):
            return torch.full((inputs.shape[0],), -1)
        values = inputs.cpu()
        placed = (values[..., self.features :] == torch.from_numpy(self.position_vectors)).all(dim=-1).all(dim=-1)
        return torch.where(self._graph.well_formed(_numbered(values[..., : self.features])) & placed, 0, -1)

    def metrics(self, outputs: Float[Tensor, "batch scored output"], batch: Batch) -> dict[str, Tensor]:
        """`partial_s`: the mean squared error of step s's symbol over its K coordinates, for each step asked for."""
        squares = (outputs - batch.answers).square()
        errors = squares.reshape(*squares.shape[:-1], len(self.asked), self.features).mean(dim=-1)
        return {f"partial_{step}": errors[..., index] for index, step in enumerate(self.asked)}

    def render(self, inputs: Float[Tensor, "batch position both"]) -> Sequence[Example]:
        """The sequences with a letter for each distinct symbol, in order of appearance from the queries on."""
        numbers = _numbered(inputs.cpu()[..., : self.features])
        _, found, known = self._graph.follow(numbers)
        sides = self.split_of(inputs).tolist()
        return [
            self._render(symbols, found[:, row].T.tolist(), known[row].tolist(), sides[row])
            for row, symbols in enumerate(numbers.tolist())
        ]

    def _render(self, symbols: list[int], found: list[list[int]], known: list[bool], side: int) -> Example:
        records, length = self._graph, len(symbols)
        starts = records.query_places(length).tolist()
        ways = [place for start, path in zip(starts, found, strict=True) for place in (*start, *path)]
        names: dict[int, str] = {}
        for place in (*ways, *range(length)):
            names.setdefault(symbols[place], letters(len(names)))
        named = [names[symbol] for symbol in symbols]
        queries = [(query, path, known[query]) for query, path in enumerate(found)]
        told = [
            "".join(named[path[step - 1]] for step in self.asked) if sure else "unknown" for _, path, sure in queries
        ]
        return Example(
            tuple(Token(name, part) for name, part in zip(named, records.parts(length), strict=True)),
            tuple(records.way(named, query, path, sure) for query, path, sure in queries),
            ", ".join(told),
            self.splits[side] if side >= 0 else "nowhere",
        )


@register_task("retrieval/conditional-vectors")
def conditional_retrieval(
    chains: int = 3,
    parents: Lists = ((0,), (0,), (1, 2)),
    roots: int = 1,
    features: int = 4,
    implicit_curriculum: bool = True,
    asked_steps: Numbers = (),
    positions: Literal["token", "pair"] = "token",
    frequencies: Reals = (),
) -> MinimalRetrieval:
    """The vectors that depend on several retrieved before: `xyz .. ay .. ax .. a`, or any such graph.

    See `retrieval/minimal`, which is the same for chains. `--roots 2 --parents '0;1;2,3'` has two symbols in a query,
    one step from each, and a table for both, as the functions formulation of section 4 has.
    Source: stacked attention heads, section 3.1.
    """
    return MinimalRetrieval(
        chains=chains,
        steps=len(parents),
        features=features,
        implicit_curriculum=implicit_curriculum,
        asked_steps=asked_steps,
        positions=positions,
        frequencies=frequencies,
        parents=parents,
        roots=roots,
    )


def _numbered(symbols: Float[Tensor, "batch position feature"]) -> Int[Tensor, "batch position"]:
    """A number for each symbol of a sequence: equal symbols have one, and no others."""
    vectors = symbols.numpy()
    order = np.lexsort(np.moveaxis(vectors, 2, 0), axis=1)
    ordered = np.take_along_axis(vectors, order[..., None], axis=1)
    rank = np.zeros(order.shape, dtype=np.int64)
    np.cumsum((ordered[:, 1:] != ordered[:, :-1]).any(axis=2), axis=1, out=rank[:, 1:])
    numbers = np.empty_like(rank)
    np.put_along_axis(numbers, order, rank, axis=1)
    return torch.from_numpy(numbers)


def letters(index: int) -> str:
    """A, B, .. Z, AA, AB ..: the name of the symbol with this index from 0."""
    name = ""
    while index >= 0:
        name = chr(ord("A") + index % 26) + name
        index = index // 26 - 1
    return name
