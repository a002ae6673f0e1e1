"""The retrieval problem with tokens for symbols: follow chains, or any graph of steps."""

import math
from collections.abc import Sequence
from functools import cached_property
from itertools import product
from typing import ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Int
from numpy.random import Generator
from pydantic import Field, model_validator
from torch import Tensor

from anchorlab.axes import TaskShape
from anchorlab.errors import SpecError
from anchorlab.rng import generator
from anchorlab.tasks.batch import Answer, Batch, Example, TraceStep, drawn_in_parts
from anchorlab.tasks.numbers import Lists, Numbers
from anchorlab.tasks.registry import register_task
from anchorlab.tasks.retrieval.graph import StepGraph, asked_steps, check_asked_steps
from anchorlab.tasks.task import Task

_ROWS_AT_ONCE = 8192


@register_task("retrieval/tokens")
class TokenRetrieval(Task):
    """The token at the end of each query's chain of pairs; with D = 1, the induction problem.

    Each sequence draws N chains of symbols x_0 .. x_D, all different. The input holds the N pairs (x_{s-1}, x_s) of
    each step s = D down to 1, then the N queries x_0, each part in random order. All queries of a sequence ask
    for the symbol of the same step. With N = 2, D = 2, chains A and B:

        A1 A2 B1 B2 B0 B1 A0 A1 #2 A0 B0 -> A2 B2

    chains, steps: the numbers N of chains and D of steps
    symbols: the number of symbols, which are the tokens 0 .. symbols - 1
    implicit_curriculum: if true, each sequence draws a step s to ask for, and the marker #s (token symbols + s - 1)
        before the queries names it; else every sequence asks for step D, without a marker
    asked_steps: restricts the curriculum to these steps; (3,) asks for x_3 and needs no marker
    parents, roots: the graph of steps, as in `MinimalRetrieval`: the values that each step depends on, and the number
        of symbols of a query, which is scored at its last

    Groups are the steps asked for. The splits have the same distribution; with the default number of symbols hardly any
    sequence recurs, but nothing prevents it: `separated` is false.
    Source: stacked attention heads, sections 3.1 and 6; tokens replace vectors, and a sequence asks for one step,
    since a position predicts one token.
    """

    family: Literal["token-retrieval"] = "token-retrieval"
    chains: int = Field(4, ge=1, le=256)
    steps: int = Field(3, ge=1, le=256)
    symbols: int = Field(64, ge=2, le=32_000)
    implicit_curriculum: bool = True
    asked_steps: Numbers = ()
    parents: Lists = ()
    roots: int = Field(1, ge=1, le=16)

    separated: ClassVar[bool] = False

    @model_validator(mode="after")
    def _fits(self) -> "TokenRetrieval":
        check_asked_steps(self.asked_steps, self.steps, self.implicit_curriculum)
        needed = self._graph.symbols
        if needed > self.symbols:
            raise SpecError("symbols", f"{self.symbols} are fewer than the {needed} of a sequence", "add some")
        return self

    @cached_property
    def _graph(self) -> StepGraph:
        return StepGraph(self.chains, self.steps, self.roots, self.parents)

    @property
    def asked(self) -> tuple[int, ...]:
        """The steps that queries may ask for, counted from 1."""
        return asked_steps(self.asked_steps, self.steps, self.implicit_curriculum)

    @property
    def _marked(self) -> bool:
        """Whether a marker names the step asked for; it does if there are several to choose from."""
        return len(self.asked) > 1

    @property
    def shape(self) -> TaskShape:
        """Tokens in, tokens out."""
        tokens = self.symbols + (self.steps if self._marked else 0)
        return TaskShape("tokens", self._graph.length + self._marked + self._graph.asking, tokens, tokens)

    def sample(self, split: str, n: int, seed: int) -> Batch:
        """Draw `n` sequences.

        Latents: `symbols` `[batch value chain]`, numbered as in `parents`; `queries` `[batch place]`, the chain of each
        query; `step` `[batch]`, the step asked for.
        """
        self.check_draw(split, n, seed)
        random = generator(seed, "sequences", split)
        latents = drawn_in_parts(n, _ROWS_AT_ONCE, lambda rows: self._draw(random, rows))
        inputs, step = latents.pop("inputs"), latents["step"]
        asked = latents["symbols"][torch.arange(n), self.roots + step - 1]
        targets = asked.gather(1, latents["queries"])
        positions = self._graph.query_places(self.shape.length)[:, -1]
        group, groups = torch.searchsorted(torch.tensor(self.asked), step), tuple(f"step {one}" for one in self.asked)
        return Batch(inputs, targets, targets, positions, split, group=group, groups=groups, latents=latents)

    def _draw(self, random: Generator, rows: int) -> dict[str, np.ndarray]:
        """Draw the inputs and latents of `rows` sequences."""
        graph, values = self._graph, (self._graph.values, self.chains)
        drawn = np.argsort(random.random((rows, self.symbols)), axis=1)[:, : graph.symbols]
        orders = [np.argsort(random.random((rows, len(table.ids))), axis=1) for table in graph.tables]
        queries = np.argsort(random.random((rows, self.chains)), axis=1)
        step = np.array(self.asked)[random.integers(len(self.asked), size=rows)]
        tokens = np.take_along_axis(drawn, graph.lay_out(orders, queries), axis=1)
        marker = [self.symbols + step[:, None] - 1] if self._marked else []
        return {
            "symbols": drawn[:, : math.prod(values)].reshape(rows, *values),
            "queries": queries,
            "step": step,
            "inputs": np.concatenate([tokens[:, : graph.length], *marker, tokens[:, graph.length :]], axis=1),
        }

    def _step(self, tokens: Int[Tensor, "batch position"]) -> Int[Tensor, "batch"]:
        """Return the step that each sequence asks for, 0 if its marker is invalid."""
        if not self._marked:
            return torch.full((len(tokens),), self.asked[0])
        step = tokens[:, self._graph.length] - self.symbols + 1
        return step.where(torch.isin(step, torch.tensor(self.asked)), 0)

    def oracle(self, inputs: Int[Tensor, "batch position"]) -> Answer:
        """Return the answers, found by following each query from record to record.

        An answer is known if every step has exactly one match and the marker is valid.

        The trace has an entry for each query and step: the position and value read, -1 after the step asked for.
        """
        values, places, known = self._graph.follow(inputs)
        step = self._step(inputs)
        known = known & (step > 0).unsqueeze(1)
        index = (self.roots + step.clamp(min=1) - 1).view(1, -1, 1).expand(1, -1, self.chains)
        read = known & (torch.arange(1, self.steps + 1).view(-1, 1, 1) <= step.view(1, -1, 1))
        trace = tuple(
            TraceStep(
                f"query {query} step {one + 1}",
                torch.where(read[one, :, query], places[one, :, query], -1),
                torch.where(read[one, :, query], values[self.roots + one, :, query], -1),
            )
            for query, one in product(range(self.chains), range(self.steps))
        )
        return Answer(values.gather(0, index)[0], known, trace)

    def roles(self, batch: Batch) -> dict[str, Int[Tensor, "batch instance"]]:
        """Return the positions of each query's records, such as `x2 of pair 2`, of the `marker` and of `query x0`."""
        tokens = batch.inputs.cpu()
        marker = {"marker": torch.full((len(batch), 1), self._graph.length)} if self._marked else {}
        return self._graph.roles(tokens) | marker | self._graph.query_roles(tokens)

    def split_of(self, inputs: Int[Tensor, "batch position"]) -> Int[Tensor, "batch"]:
        """Return 0 for a well-formed sequence, which both splits could draw, and -1 for any other."""
        legal = inputs < self.symbols
        if self._marked:
            legal[:, self._graph.length] = self._step(inputs) > 0
        return torch.where(legal.all(dim=1) & self._graph.well_formed(inputs), 0, -1)

    def text_of(self, token: int) -> str:
        """Return a symbol's number, or `#s` for the marker of step s."""
        return str(token) if token < self.symbols else f"#{token - self.symbols + 1}"

    def render(self, inputs: Int[Tensor, "batch position"]) -> Sequence[Example]:
        """Return the sequences with each query's path to its answer."""
        answer, places = self.oracle(inputs), self._graph.follow(inputs)[1]
        answers, known = answer.answers.tolist(), answer.known.tolist()
        sides, steps = self.split_of(inputs).tolist(), self._step(inputs).tolist()
        examples = []
        for row, tokens in enumerate(inputs.tolist()):
            names, shown = ([self.text_of(token) for token in some] for some in (tokens, answers[row]))
            paths = [path[: steps[row]] for path in places[:, row].T.tolist()]
            split = self.splits[sides[row]] if sides[row] >= 0 else "nowhere"
            examples.append(self._graph.example(names, paths, shown, known[row], split))
        return examples


@register_task("retrieval/conditional")
def conditional_retrieval(
    chains: int = 3,
    parents: Lists = ((0,), (0,), (1, 2)),
    roots: int = 1,
    symbols: int = 64,
    implicit_curriculum: bool = True,
    asked_steps: Numbers = (),
) -> TokenRetrieval:
    """The token that depends on several tokens retrieved earlier: `xyz .. ay .. ax .. a`, or any such graph.

    The arguments are as in `retrieval/tokens`. `--roots 2 --parents '0;1;2,3'` gives queries of two symbols, one step
    from each symbol, and a table over the results of both, as in the functions formulation of section 4.
    Source: stacked attention heads, section 3.1.
    """
    return TokenRetrieval(
        chains=chains,
        steps=len(parents),
        symbols=symbols,
        implicit_curriculum=implicit_curriculum,
        asked_steps=asked_steps,
        parents=parents,
        roots=roots,
    )
