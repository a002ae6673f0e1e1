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
from anchorlab.tasks.batch import Answer, Batch, Example, TraceStep, drawn_in_parts
from anchorlab.tasks.metrics import LossKind
from anchorlab.tasks.numbers import Lists, Numbers, Reals
from anchorlab.tasks.registry import register_task
from anchorlab.tasks.retrieval.graph import StepGraph, asked_steps, check_asked_steps
from anchorlab.tasks.task import Task

_ROWS_AT_ONCE = 2048


@register_task("retrieval/minimal")
class MinimalRetrieval(Task):
    """The symbols at the end of each query's chain of pairs, where every symbol is a fresh normal vector.

    There are N chains x_0 .. x_D. The input holds the N pairs (x_{s-1}, x_s) of each step s = D down to 1, then the N
    queries x_0; the order of chains is drawn for each step and for the queries. With N = 2, D = 2, chains A and B:

        (A1 A2) (B1 B2) (B0 B1) (A0 A1) A0 B0

    chains, steps, features: the numbers N of chains, D of steps and K of features of a symbol
    implicit_curriculum: if true, each query asks for all of x_1 .. x_D (D K numbers), else only for x_D (K numbers)
    asked_steps: restricts the curriculum to these steps: (1, 3) asks for x_1 and x_3
    positions: whether the position vectors (K numbers, appended to each symbol) count every `token` or every `pair`.
        With `pair`, all symbols of a pair, a larger record or a query share one position, as in the paper's theory.
    frequencies: w of the position vector [cos(p w_1) .. cos(p w_{K/2}), sin(p w_1) ..]; by default the rotary
        embedding's 10000^(-2i/K), since the paper does not give its own
    parents: the values that each step depends on, in place of the chain 0; 1; 2; ... Values are numbered, the query's
        symbols first (0 .. roots - 1), then one per step. 0; 0; 1,2 is the conditional retrieval of section 3.1,
        `xyz ay ax a`: z follows x and y, which both follow a. A step with k parents has a record for each of the N^k
        combinations of chains. The value of a combination of different chains is a separate symbol, so that no parent
        alone determines it. Records of later steps contain only the values of unmixed combinations.
    roots: the number of symbols of a query, which is scored at its last

    The splits have the same distribution and differ only in their random streams. A sequence recurs with probability
    zero, but nothing in it determines its split: `separated` is false.
    Source: stacked attention heads, sections 3.1 and 6.
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
        _ = self._graph  # raises for impossible graphs
        return self

    @model_serializer(mode="wrap")
    def _written(self, write: Callable[["MinimalRetrieval"], dict[str, Any]]) -> dict[str, Any]:
        # A chain omits `parents` and `roots`, so that its runs keep the addresses from before these fields existed.
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
        """The steps that queries ask for, counted from 1."""
        return asked_steps(self.asked_steps, self.steps, self.implicit_curriculum)

    @cached_property
    def position_vectors(self) -> Float[np.ndarray, "position feature"]:
        """The vector that is appended to the symbol at each position."""
        index = np.arange(self.shape.length)
        if self.positions == "pair":
            sizes = [np.full(len(table.ids), table.ids.shape[1]) for table in reversed(self._graph.tables)]
            together = np.concatenate([*sizes, np.full(self.chains, self.roots)])
            index = np.repeat(np.arange(len(together)), together)
        rotary = 10_000.0 ** (-2 * np.arange(self.features // 2) / self.features)
        angle = index[:, None] * (np.array(self.frequencies) if self.frequencies else rotary)
        return np.concatenate([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32)

    def sample(self, split: str, n: int, seed: int) -> Batch:
        """Draw `n` sequences.

        Latents: `symbols` `[batch chain value feature]`, with values numbered as in `parents`; `order`
        `[batch step record]`, the chain of each query (step 0) and the number of the record at each place (steps
        1 .. D), padded with -1.
        """
        self.check_draw(split, n, seed)
        random = generator(seed, "sequences", split)
        latents = drawn_in_parts(n, _ROWS_AT_ONCE, lambda rows: self._draw(random, rows))
        inputs, answers = latents.pop("inputs"), latents.pop("answers")
        positions = self._graph.query_places(self.shape.length)[:, -1]
        return Batch(inputs, answers, answers, positions, split, latents=latents)

    def _draw(self, random: Generator, rows: int) -> dict[str, np.ndarray]:
        """Draw the inputs, answers and latents of `rows` sequences."""
        graph, N, V, K = self._graph, self.chains, self._graph.values, self.features
        symbols = random.standard_normal((rows, graph.symbols, K), dtype=np.float32)
        counts = [N, *(len(table.ids) for table in graph.tables)]  # of queries, then of the records of each step
        draws = np.split(random.random((rows, sum(counts))), np.cumsum(counts)[:-1], axis=1)
        orders = [np.argsort(draw, axis=1) for draw in draws]
        order = np.full((rows, len(counts), max(counts)), -1)
        for step, of_step in enumerate(orders):
            order[:, step, : of_step.shape[1]] = of_step
        # Symbols are drawn chain by chain, [chain value], but numbered value by value.
        drawn = np.concatenate([np.arange(N * V).reshape(N, V).T.ravel(), np.arange(N * V, graph.symbols)])
        # look symbols up by one flat index: the number of the sequence times its symbols, plus the symbol
        first = np.arange(rows)[:, None] * graph.symbols
        flat = symbols.reshape(-1, K)
        placed = flat[drawn[graph.lay_out(orders[1:], orders[0])] + first]
        # the answers of a query are the values after its chain's last root, which lie one after another in a chain
        last_root = orders[0] * V + self.roots - 1 + first
        return {
            "inputs": np.concatenate([placed, np.broadcast_to(self.position_vectors, placed.shape)], axis=2),
            "answers": flat[last_root[:, :, None] + np.array(self.asked)].reshape(rows, N, len(self.asked) * K),
            "symbols": symbols[:, : N * V].reshape(rows, N, V, K),
            "order": order,
        }

    def oracle(self, inputs: Float[Tensor, "batch position both"]) -> Answer:
        """Return the answers, found by following each query to equal symbols; known if every step has a single match.

        The trace has an entry for each query and step: the position and value of the symbol retrieved.
        """
        symbols = inputs[..., : self.features]
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
        """Return the positions of the symbols in each query's records, such as `x2 of pair 2`, and of `query x0`."""
        numbers = _numbered(batch.inputs.cpu()[..., : self.features])
        return self._graph.roles(numbers) | self._graph.query_roles(numbers)

    def split_of(self, inputs: Float[Tensor, "batch position both"]) -> Int[Tensor, "batch"]:
        """Return 0 for a well-formed sequence, which both splits could draw, and -1 for any other."""
        positions = inputs[..., self.features : 2 * self.features]
        placed = (positions == torch.from_numpy(self.position_vectors)).flatten(1).all(dim=1)
        return torch.where(self._graph.well_formed(_numbered(inputs[..., : self.features])) & placed, 0, -1)

    def metrics(
        self, outputs: Float[Tensor, "batch scored output"], batch: Batch
    ) -> dict[str, Float[Tensor, "batch scored"]]:
        """Return `partial_s`, the mean squared error over the K coordinates of step s's symbol, for each step asked."""
        squares = (outputs - batch.answers).square()
        errors = squares.reshape(*squares.shape[:-1], len(self.asked), self.features).mean(dim=-1)
        return {f"partial_{step}": errors[..., index] for index, step in enumerate(self.asked)}

    def render(self, inputs: Float[Tensor, "batch position both"]) -> Sequence[Example]:
        """Return the sequences with a letter for each distinct symbol, in the order in which the queries reach them."""
        numbers = _numbered(inputs[..., : self.features])
        _, found, known = self._graph.follow(numbers)
        sides, starts = self.split_of(inputs).tolist(), self._graph.query_places(self.shape.length).tolist()
        examples = []
        for row, (symbols, asked) in enumerate(zip(numbers.tolist(), self._shown(inputs), strict=True)):
            paths = found[:, row].T.tolist()
            ways = [place for start, path in zip(starts, paths, strict=True) for place in (*start, *path)]
            names: dict[int, str] = {}
            for place in (*ways, *range(len(symbols))):
                names.setdefault(symbols[place], letters(len(names)))
            named = [names[symbol] for symbol in symbols]
            answers = ["".join(named[path[step - 1]] for step in asked) for path in paths]
            split = self.splits[sides[row]] if sides[row] >= 0 else "nowhere"
            examples.append(self._graph.example(named, paths, answers, known[row].tolist(), split))
        return examples

    def _shown(self, inputs: Float[Tensor, "batch position both"]) -> list[tuple[int, ...]]:
        """Return the steps whose symbols are each sequence's answers."""
        return [self.asked] * len(inputs)


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
    """The vectors that depend on several vectors retrieved earlier: `xyz .. ay .. ax .. a`, or any such graph.

    The arguments are as in `retrieval/minimal`. `--roots 2 --parents '0;1;2,3'` gives queries of two symbols, one step
    from each symbol, and a table over the results of both, as in the functions formulation of section 4.
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
    """Number the symbols of each sequence so that two numbers are equal if and only if the symbols are."""
    vectors = symbols.numpy()
    # sort the vectors of each sequence, give equal neighbours the same rank, and send the ranks back to the positions
    order = np.lexsort(np.moveaxis(vectors, 2, 0), axis=1)
    ordered = np.take_along_axis(vectors, order[..., None], axis=1)
    rank = np.zeros(order.shape, dtype=np.int64)
    np.cumsum((ordered[:, 1:] != ordered[:, :-1]).any(axis=2), axis=1, out=rank[:, 1:])
    numbers = np.empty_like(rank)
    np.put_along_axis(numbers, order, rank, axis=1)
    return torch.from_numpy(numbers)


def letters(index: int) -> str:
    """Return the name of the symbol with this index from 0: A, B, .. Z, AA, AB, .."""
    name = ""
    while index >= 0:
        name = chr(ord("A") + index % 26) + name
        index = index // 26 - 1
    return name
