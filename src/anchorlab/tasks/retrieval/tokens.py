"""The retrieval problem with symbols of a vocabulary: chains, and any graph of steps that depend on earlier ones."""

from collections.abc import Sequence
from functools import cached_property
from itertools import product
from typing import ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.random import Generator
from pydantic import Field, model_validator
from torch import Tensor

from anchorlab.axes import TaskShape
from anchorlab.errors import SpecError
from anchorlab.rng import generator
from anchorlab.tasks.batch import Answer, Batch, Example, Token, TraceStep
from anchorlab.tasks.metrics import correct, probability
from anchorlab.tasks.numbers import Lists, Numbers
from anchorlab.tasks.registry import register_task, task_family
from anchorlab.tasks.retrieval.asked_steps import asked_steps, check_asked_steps
from anchorlab.tasks.retrieval.graph import StepGraph
from anchorlab.tasks.task import Task

_BLOCK = 8192


@register_task("retrieval/tokens")
@task_family("token-retrieval")
class TokenRetrieval(Task):
    """The token that each query's chain of pairs leads to; with D = 1, the induction problem.

    N chains of symbols, all different and drawn afresh for each sequence. Input: for step s = D down to 1 the records
    of that step, then the N queries, each part in an order of its own. Asked for at each query: the symbol of one step
    of its chain, the same step for all queries of a sequence. A record of a chain is the pair (x_{s-1}, x_s). With
    N = 2, D = 2, chains A and B:

        A1 A2 B1 B2 B0 B1 A0 A1 #2 A0 B0 -> A2 B2

    chains, steps: N and D.
    symbols: how many there are; tokens 0 .. symbols - 1.
    implicit_curriculum: the step asked for is drawn for each sequence, and the marker #s before the queries tells it
        (token symbols + s - 1); or it is always the last, D, and there is no marker.
    asked_steps: if given, a curriculum of these steps alone; (3,) asks for x_3 and needs no marker.
    parents: what each step depends on, in place of the chain 0; 1; 2; ..: numbers of values, the query's symbols first
        (0 .. roots - 1), then the steps'. 0; 0; 1,2 is the conditional retrieval of section 3.1, `xyz ay ax a`: z
        follows x and y, which both follow a. A step with k parents has a record for all N^k combinations of chains,
        the value of a mixed one being a symbol of its own, so that no parent alone tells it; unless a later
        step depends on this one, where the chains' own values stand again and those of mixed records do not.
    roots: how many symbols a query has.

    Groups are the steps, so that losses and accuracies of each are measured apart. With as many symbols as the default
    hardly any sequence recurs, but the splits have one law and nothing keeps them apart: `separated` is false.
    Source: stacked attention heads, sections 3.1 and 6; tokens in place of vectors, and one step asked for at a time,
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
        """The steps that are asked for, counted from 1."""
        return asked_steps(self.asked_steps, self.steps, self.implicit_curriculum)

    @property
    def _marked(self) -> bool:
        return len(self.asked) > 1

    @property
    def shape(self) -> TaskShape:
        """Tokens in, tokens out."""
        tokens = self.symbols + (self.steps if self._marked else 0)
        return TaskShape("tokens", self._graph.length + self._marked + self._graph.asking, tokens, tokens)

    def sample(self, split: str, n: int, seed: int) -> Batch:
        """`n` fresh sequences; a query is asked at its last symbol.

        Latents: `symbols` `[batch value chain]`, the query's first, then the steps'; `queries` `[batch place]`, the
        chain of each query; `step` `[batch]`, the one asked for.
        Errors: `SpecError` for an unknown split.
        """
        self.check_draw(split, n)
        random = generator(seed, "sequences", split)
        symbols = np.empty((n, self._graph.values, self.chains), dtype=np.int64)
        queries = np.empty((n, self.chains), dtype=np.int64)
        inputs = np.empty((n, self.shape.length), dtype=np.int64)
        step = np.empty(n, dtype=np.int64)
        for start in range(0, n, _BLOCK):
            rows = slice(start, min(start + _BLOCK, n))
            self._draw(random, symbols[rows], queries[rows], inputs[rows], step[rows])
        asked = np.take_along_axis(symbols, self.roots + step[:, None, None] - 1, axis=1)[:, 0]
        targets = torch.from_numpy(np.take_along_axis(asked, queries, axis=1))
        return Batch(
            inputs=torch.from_numpy(inputs),
            targets=targets,
            answers=targets,
            positions=self._graph.query_places(self.shape.length)[:, -1],
            split=split,
            group=torch.from_numpy(np.searchsorted(np.array(self.asked), step)),
            groups=tuple(f"step {one}" for one in self.asked),
            latents={
                "symbols": torch.from_numpy(symbols),
                "queries": torch.from_numpy(queries),
                "step": torch.from_numpy(step),
            },
        )

    def _draw(
        self,
        random: Generator,
        symbols: Int[np.ndarray, "batch value chain"],
        queries: Int[np.ndarray, "batch place"],
        inputs: Int[np.ndarray, "batch position"],
        step: Int[np.ndarray, "batch"],
    ) -> None:
        rows, records = len(symbols), self._graph
        drawn = np.argsort(random.random((rows, self.symbols)), axis=1)[:, : records.symbols]
        symbols[:] = drawn[:, : symbols[0].size].reshape(symbols.shape)
        orders = [np.argsort(random.random((rows, len(block.ids))), axis=1) for block in records.blocks]
        queries[:] = np.argsort(random.random(queries.shape), axis=1)
        step[:] = np.array(self.asked)[random.integers(len(self.asked), size=rows)]
        tokens = np.take_along_axis(drawn, records.lay_out(orders, queries), axis=1)
        inputs[:, : records.length] = tokens[:, : records.length]
        inputs[:, -records.asking :] = tokens[:, records.length :]
        if self._marked:
            inputs[:, records.length] = self.symbols + step - 1

    def _step(self, tokens: Int[Tensor, "batch position"]) -> Int[Tensor, "batch"]:
        """The step asked for, 0 where the marker is none."""
        if not self._marked:
            return torch.full((len(tokens),), self.asked[0])
        step = tokens[:, self._graph.length] - self.symbols + 1
        return step.where(torch.isin(step, torch.tensor(self.asked)), 0)

    def oracle(self, inputs: Int[Tensor, "batch position"]) -> Answer:
        """Follows each query from record to record; known where every step has one match and the marker is one.

        The trace has a step for each query and each step, up to the one asked for: where it was read.
        """
        if inputs.shape[1] != self.shape.length:
            raise SpecError("inputs", f"have {inputs.shape[1]} positions", f"give {self.shape.length}")
        tokens = inputs.cpu()
        values, places, known = self._graph.follow(tokens)
        step = self._step(tokens)
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
        """Every symbol of the records that a query leads to, such as `x2 of pair 2`, the marker, and `query x0`."""
        tokens = batch.inputs.cpu()
        marker = {"marker": torch.full((len(batch), 1), self._graph.length)} if self._marked else {}
        return self._graph.roles(tokens) | marker | self._graph.query_roles(tokens)

    def split_of(self, inputs: Int[Tensor, "batch position"]) -> Int[Tensor, "batch"]:
        """0 for a well-formed sequence, which either split could hold (see above), -1 for any other."""
        tokens = inputs.cpu()
        if tokens.shape[1] != self.shape.length:
            return torch.full((len(tokens),), -1)
        legal = (tokens >= 0) & (tokens < self.symbols)
        if self._marked:
            legal[:, self._graph.length] = self._step(tokens) > 0
        return torch.where(legal.all(dim=1) & self._graph.well_formed(tokens), 0, -1)

    def metrics(self, outputs: Float[Tensor, "batch scored output"], batch: Batch) -> dict[str, Tensor]:
        """`accuracy`: the right symbol is the most probable; `right`: its probability."""
        return {
            "accuracy": correct(outputs, batch.answers),
            "right": probability(outputs, batch.answers),
        }

    def text_of(self, token: int) -> str:
        """A symbol's number, or `#s` for the marker of step s."""
        return str(token) if token < self.symbols else f"#{token - self.symbols + 1}"

    def render(self, inputs: Int[Tensor, "batch position"]) -> Sequence[Example]:
        """The sequences with each query's way to its answer."""
        answer, places = self.oracle(inputs), self._graph.follow(inputs.cpu())[1]
        answers, known = answer.answers.tolist(), answer.known.tolist()
        sides, steps = self.split_of(inputs).tolist(), self._step(inputs.cpu()).tolist()
        return [
            self._render(tokens, places[:, row].T.tolist(), answers[row], known[row], steps[row], sides[row])
            for row, tokens in enumerate(inputs.tolist())
        ]

    def _render(
        self, tokens: list[int], paths: list[list[int]], answers: list[int], known: list[bool], step: int, side: int
    ) -> Example:
        names = [self.text_of(token) for token in tokens]
        queries = enumerate(zip(paths, known, strict=True))
        trace = [self._graph.way(names, query, path[:step], certain) for query, (path, certain) in queries]
        told = [self.text_of(one) if certain else "unknown" for one, certain in zip(answers, known, strict=True)]
        return Example(
            tuple(Token(name, role) for name, role in zip(names, self._graph.parts(len(names)), strict=True)),
            tuple(trace),
            ", ".join(told),
            self.splits[side] if side >= 0 else "nowhere",
        )


@register_task("retrieval/conditional")
def conditional_retrieval(
    chains: int = 3,
    parents: Lists = ((0,), (0,), (1, 2)),
    roots: int = 1,
    symbols: int = 64,
    implicit_curriculum: bool = True,
    asked_steps: Numbers = (),
) -> TokenRetrieval:
    """The token that depends on several retrieved before: `xyz .. ay .. ax .. a`, or any such graph.

    See `retrieval/tokens`, which is the same for chains. `--roots 2 --parents '0;1;2,3'` has two symbols in a query,
    one step from each, and a table for both, as the functions formulation of section 4 has.
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
