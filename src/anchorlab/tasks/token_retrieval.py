"""The retrieval problem with symbols of a vocabulary: follow chains of tokens from pair to pair."""

from collections.abc import Sequence
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
from anchorlab.tasks.chains import asked_steps, check_asked_steps, follow, layout
from anchorlab.tasks.numbers import Numbers
from anchorlab.tasks.registry import register_task, task_family
from anchorlab.tasks.task import Answer, Batch, Example, Scores, Task, Token, TraceStep

_BLOCK = 8192


@register_task("retrieval/tokens")
@task_family("token-retrieval")
class TokenRetrieval(Task):
    """The token that each query's chain of pairs leads to; with D = 1, the induction problem.

    N chains x_0 .. x_D of N (D + 1) different symbols, drawn afresh for each sequence. Input: for step s = D down to 1
    the N pairs (x_{s-1}, x_s), then the N queries x_0, each part in an order of its own. Asked for at each query: the
    symbol of one step of its chain, the same step for all queries of a sequence. With N = 2, D = 2, chains A and B:

        A1 A2 B1 B2 B0 B1 A0 A1 #2 A0 B0 -> A2 B2

    chains, steps: N and D.
    symbols: how many there are; tokens 0 .. symbols - 1.
    implicit_curriculum: the step asked for is drawn for each sequence, and the marker #s before the queries tells it
        (token symbols + s - 1); or it is always the last, D, and there is no marker.
    asked_steps: if given, a curriculum of these steps alone; (3,) asks for x_3 and needs no marker.

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

    separated: ClassVar[bool] = False

    @model_validator(mode="after")
    def _fits(self) -> "TokenRetrieval":
        needed = self.chains * (self.steps + 1)
        if needed > self.symbols:
            raise SpecError("symbols", f"{self.symbols} are fewer than the {needed} of a sequence", "add some")
        check_asked_steps(self.asked_steps, self.steps, self.implicit_curriculum)
        return self

    @property
    def asked(self) -> tuple[int, ...]:
        """The steps of a chain that are asked for."""
        return asked_steps(self.asked_steps, self.steps, self.implicit_curriculum)

    @property
    def _marked(self) -> bool:
        return len(self.asked) > 1

    @property
    def _pairs(self) -> int:
        return 2 * self.chains * self.steps

    @property
    def shape(self) -> TaskShape:
        """Tokens in, tokens out."""
        tokens = self.symbols + (self.steps if self._marked else 0)
        return TaskShape("tokens", self._pairs + self._marked + self.chains, tokens, tokens)

    def sample(self, split: str, n: int, seed: int) -> Batch:
        """`n` fresh sequences.

        Latents: `symbols` `[batch chain step]`, steps 0..D; `order` `[batch step chain]`, as of minimal retrieval;
        `step` `[batch]`, the one asked for.
        Errors: `SpecError` for an unknown split.
        """
        self.check_draw(split, n)
        random = generator(seed, "sequences", split)
        symbols = np.empty((n, self.chains, self.steps + 1), dtype=np.int64)
        order = np.empty((n, self.steps + 1, self.chains), dtype=np.int64)
        inputs = np.empty((n, self.shape.length), dtype=np.int64)
        step = np.empty(n, dtype=np.int64)
        for start in range(0, n, _BLOCK):
            rows = slice(start, min(start + _BLOCK, n))
            self._draw(random, symbols[rows], order[rows], inputs[rows], step[rows])
        asked = np.take_along_axis(symbols, order[:, 0, :, None], axis=1)  # by place of the query
        targets = torch.from_numpy(np.take_along_axis(asked, step[:, None, None], axis=2)[..., 0])
        return Batch(
            inputs=torch.from_numpy(inputs),
            targets=targets,
            answers=targets,
            positions=torch.arange(self.shape.length - self.chains, self.shape.length),
            split=split,
            group=torch.from_numpy(np.searchsorted(np.array(self.asked), step)),
            groups=tuple(f"step {one}" for one in self.asked),
            latents={
                "symbols": torch.from_numpy(symbols),
                "order": torch.from_numpy(order),
                "step": torch.from_numpy(step),
            },
        )

    def _draw(
        self,
        random: Generator,
        symbols: Int[np.ndarray, "batch chain step"],
        order: Int[np.ndarray, "batch step chain"],
        inputs: Int[np.ndarray, "batch position"],
        step: Int[np.ndarray, "batch"],
    ) -> None:
        rows = len(symbols)
        shuffled = np.argsort(random.random((rows, self.symbols)), axis=1)
        symbols[:] = shuffled[:, : symbols[0].size].reshape(symbols.shape)
        order[:] = np.argsort(random.random(order.shape), axis=2)
        step[:] = np.array(self.asked)[random.integers(len(self.asked), size=rows)]
        tokens = np.take_along_axis(symbols.reshape(rows, -1), layout(order), axis=1)
        inputs[:, : self._pairs] = tokens[:, : self._pairs]
        inputs[:, inputs.shape[1] - self.chains :] = tokens[:, self._pairs :]
        if self._marked:
            inputs[:, self._pairs] = self.symbols + step - 1

    def _read(
        self, inputs: Int[Tensor, "batch position"]
    ) -> tuple[Int[Tensor, "step batch query"], Bool[Tensor, "batch query"], Int[Tensor, "batch"]]:
        """Where each query's chain is read, whether that is certain, and the step asked for (-1 for no marker)."""
        tokens = inputs.cpu()
        if tokens.shape[1] != self.shape.length:
            raise SpecError("inputs", f"have {tokens.shape[1]} positions", f"give {self.shape.length}")
        found, known = follow(tokens[:, : self._pairs, None], tokens[:, -self.chains :, None], self.steps)
        step = torch.full((len(tokens),), self.asked[0])
        if self._marked:
            step = tokens[:, self._pairs] - self.symbols + 1
            step = step.where(torch.isin(step, torch.tensor(self.asked)), -1)
        return found, known & (step > 0).unsqueeze(1), step

    def oracle(self, inputs: Int[Tensor, "batch position"]) -> Answer:
        """Follows each query from pair to pair; known where every step has one match and the marker is one.

        The trace has a step for each query and each step of its chain, up to the one asked for: where it was read.
        """
        tokens = inputs.cpu()
        found, known, step = self._read(tokens)
        values = torch.stack([tokens.gather(1, at) for at in found])
        index = (step.clamp(min=1) - 1).view(1, -1, 1).expand(1, -1, self.chains)
        read = known & (torch.arange(1, self.steps + 1).view(-1, 1, 1) <= step.view(1, -1, 1))
        trace = tuple(
            TraceStep(
                f"query {query} step {one + 1}",
                torch.where(read[one, :, query], found[one, :, query], -1),
                torch.where(read[one, :, query], values[one, :, query], -1),
            )
            for query in range(self.chains)
            for one in range(self.steps)
        )
        return Answer(values.gather(0, index)[0], known, trace)

    def split_of(self, inputs: Int[Tensor, "batch position"]) -> Int[Tensor, "batch"]:
        """0 for a sequence of N chains of different symbols, which either split could hold, -1 for any other."""
        tokens = inputs.cpu()
        if tokens.shape[1] != self.shape.length:
            return torch.full((len(tokens),), -1)
        found, known, _ = self._read(tokens)
        body = torch.cat([tokens[:, : self._pairs], tokens[:, -self.chains :]], dim=1)
        legal = known.all(dim=1) & ((body >= 0) & (body < self.symbols)).all(dim=1)
        # step s of every chain stands among the pairs of step s, and no symbol stands for two
        block = (self.steps - torch.arange(1, self.steps + 1)) * 2 * self.chains
        inside = (found >= block.view(-1, 1, 1)) & (found < block.view(-1, 1, 1) + 2 * self.chains)
        legal &= inside.all(dim=0).all(dim=1)
        legal &= _distinct(body) == self.chains * (self.steps + 1)
        return torch.where(legal & (_distinct(tokens[:, -self.chains :]) == self.chains), 0, -1)

    def metrics(self, outputs: Float[Tensor, "batch scored output"], batch: Batch) -> dict[str, Tensor]:
        """`accuracy`: the right symbol is the most probable; `right`: its probability."""
        return {
            "accuracy": Scores.correct(outputs, batch.answers),
            "right": Scores.probability(outputs, batch.answers),
        }

    def text_of(self, token: int) -> str:
        """A symbol's number, or `#s` for the marker of step s."""
        return str(token) if token < self.symbols else f"#{token - self.symbols + 1}"

    def render(self, inputs: Int[Tensor, "batch position"]) -> Sequence[Example]:
        """The sequences with each query's way to its answer."""
        found, known, steps = self._read(inputs)
        sides, answers = self.split_of(inputs).tolist(), self.oracle(inputs).answers.tolist()
        return [
            self._render(tokens, found[:, row].T.tolist(), known[row].tolist(), answers[row], int(steps[row]), side)
            for row, (tokens, side) in enumerate(zip(inputs.tolist(), sides, strict=True))
        ]

    def _render(
        self, tokens: list[int], found: list[list[int]], known: list[bool], answers: list[int], step: int, side: int
    ) -> Example:
        names, queries = [self.text_of(token) for token in tokens], range(len(tokens) - self.chains, len(tokens))
        roles = ["second" if place % 2 else "first" for place in range(self._pairs)]
        roles += ["marker"] * self._marked + ["query"] * self.chains
        trace = [
            " -> ".join([f"query {names[place]}", *(f"{names[at]} at {at}" for at in path[:step])])
            if certain
            else f"query {names[place]}: no single match"
            for place, path, certain in zip(queries, found, known, strict=True)
        ]
        told = [self.text_of(one) if certain else "unknown" for one, certain in zip(answers, known, strict=True)]
        return Example(
            tuple(Token(name, role) for name, role in zip(names, roles, strict=True)),
            tuple(trace),
            ", ".join(told),
            self.splits[side] if side >= 0 else "nowhere",
        )


def _distinct(tokens: Int[Tensor, "batch position"]) -> Int[Tensor, "batch"]:
    """How many different tokens each row has."""
    return tokens.sort(dim=1).values.diff(dim=1).ne(0).sum(dim=1) + 1
