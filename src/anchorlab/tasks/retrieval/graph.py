"""Records of a retrieval problem: what each step depends on, where its records stand, and how a query follows them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from anchorlab.errors import SpecError

_LONGEST = 65_536


@dataclass(frozen=True)
class StepTable:
    """The records of one step: for each combination of its parents' chains, the parents' symbols and a value.

    Shapes
        ids: `[record column]`, which of the sequence's symbols stands in each column; the last is the value
    """

    start: int
    parents: tuple[int, ...]
    ids: Int[np.ndarray, "record column"]

    @property
    def stop(self) -> int:
        """The position after the block."""
        return self.start + self.ids.size


@dataclass(frozen=True)
class StepGraph:
    """N chains whose steps depend on values before them: a block of records for each step, the last first, and queries.

    chains, steps: N and D.
    roots: how many symbols a query has: the chain's values 0 .. roots - 1. The value of step s is number roots + s - 1.
    parents: for each step the values it depends on; none given: each depends on the one before.

    A step with k parents has a record for all N^k combinations of chains. The value of one whose parents are of one
    chain is that chain's; a mixed one has a symbol of its own. The symbols of a sequence, all different, are numbered
    value by value, N of each, then those of mixed records.

    Errors: `SpecError` that names `roots`, `parents` or `chains`.
    """

    chains: int
    steps: int
    roots: int = 1
    parents: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        if self.roots > 1 and not self.parents:
            raise SpecError("roots", "a chain begins with one symbol", "give parents, or leave roots 1")
        if self.parents and len(self.parents) != self.steps:
            raise SpecError("parents", f"are those of {len(self.parents)} steps", f"give them for {self.steps}")
        for step, parents in enumerate(self.parents):
            if not parents or list(parents) != sorted({*parents} & {*range(self.roots + step)}):
                problem = f"{list(parents)} are not some of the values 0 to {self.roots + step - 1}, in order"
                raise SpecError(f"parents.{step}", problem, "name each value it depends on once")
        if self.length + self.asking > _LONGEST:
            problem = f"{self.chains} make {self.length + self.asking} positions"
            raise SpecError("chains", problem, f"use fewer chains or parents, at most {_LONGEST} positions")

    @property
    def graph(self) -> tuple[tuple[int, ...], ...]:
        """What each step depends on, of a chain too."""
        return self.parents or tuple((step,) for step in range(self.steps))

    @property
    def values(self) -> int:
        """How many values a chain has."""
        return self.roots + self.steps

    @property
    def symbols(self) -> int:
        """How many different symbols a sequence has."""
        mixed = sum(int(self.chains ** len(parents)) - self.chains for parents in self.graph)
        return self.chains * self.values + mixed

    @property
    def length(self) -> int:
        """How many positions the records fill."""
        return sum(int(self.chains ** len(parents)) * (len(parents) + 1) for parents in self.graph)

    @property
    def asking(self) -> int:
        """How many positions the queries fill, which are the last of a sequence."""
        return self.chains * self.roots

    @cached_property
    def blocks(self) -> tuple[StepTable, ...]:
        """The steps' records, step 1 first, though the last step stands first in the sequence."""
        ids, mixed = [], self.chains * self.values
        for step, parents in enumerate(self.graph):
            records = []
            for combination in product(range(self.chains), repeat=len(parents)):
                own = len(set(combination)) == 1
                value = (self.roots + step) * self.chains + combination[0] if own else mixed
                mixed += not own
                key = [parent * self.chains + chain for parent, chain in zip(parents, combination, strict=True)]
                records.append([*key, value])
            ids.append(np.array(records))
        starts = np.cumsum([0, *(one.size for one in reversed(ids))])[:-1][::-1].tolist()
        return tuple(StepTable(*each) for each in zip(starts, self.graph, ids, strict=True))

    def query_places(self, length: int) -> Int[Tensor, "query root"]:
        """Where the symbols of each query stand in sequences of this length; it is asked at its last."""
        return torch.arange(length - self.asking, length).reshape(self.chains, self.roots)

    def lay_out(
        self, orders: Sequence[Int[np.ndarray, "batch _"]], queries: Int[np.ndarray, "batch query"]
    ) -> Int[np.ndarray, "batch position"]:
        """Which symbol stands at each position of the records, then of the queries.

        `orders`: for each step, which of its records stands at each place; `queries`: the chain of each.
        """
        rows = len(queries)
        placed = np.empty((rows, self.length + self.asking), dtype=np.int64)
        for block, order in zip(self.blocks, orders, strict=True):
            placed[:, block.start : block.stop] = block.ids[order].reshape(rows, -1)
        placed[:, self.length :] = (np.arange(self.roots) * self.chains + queries[:, :, None]).reshape(rows, -1)
        return placed

    def _read(self, block: StepTable, symbols: Int[Tensor, "batch position"]) -> Int[Tensor, "batch record column"]:
        return symbols[:, block.start : block.stop].reshape(len(symbols), *block.ids.shape)

    def follow(
        self, symbols: Int[Tensor, "batch position"]
    ) -> tuple[Int[Tensor, "value batch query"], Int[Tensor, "step batch query"], Bool[Tensor, "batch query"]]:
        """Each query's values, where those of the steps were read, and whether every record was the only one."""
        values = list(symbols[:, self.query_places(symbols.shape[1])].unbind(dim=2))
        places, known = [], torch.ones(values[0].shape, dtype=torch.bool)
        for block in self.blocks:
            wanted = torch.stack([values[parent] for parent in block.parents], dim=-1)
            matches = (self._read(block, symbols)[:, None, :, :-1] == wanted[:, :, None]).all(dim=-1)
            known &= matches.sum(dim=-1) == 1
            record = matches.to(torch.uint8).argmax(dim=-1)
            places.append(block.start + record * block.ids.shape[1] + len(block.parents))
            values.append(symbols.gather(1, places[-1]))
        return torch.stack(values), torch.stack(places), known

    def well_formed(self, symbols: Int[Tensor, "batch position"]) -> Bool[Tensor, "batch"]:
        """Whether records and queries are those of N chains: what differs does, and each record is there once."""
        # All parents being values of the queries' chains, there is room for just as many symbols as have to differ.
        values, _, known = self.follow(symbols)
        body = torch.cat([symbols[:, : self.length], symbols[:, -self.asking :]], dim=1)
        legal = known.all(dim=1) & (_distinct(body) == self.symbols)
        for block in self.blocks:
            records = self._read(block, symbols)
            code = torch.zeros(records.shape[:2], dtype=torch.int64)
            for column, parent in enumerate(block.parents):
                of_chain = records[:, :, column, None] == values[parent][:, None]  # [batch record chain]
                legal &= of_chain.any(dim=2).all(dim=1)
                code = code * self.chains + of_chain.to(torch.uint8).argmax(dim=2)
            legal &= _distinct(code) == len(block.ids)
        return legal

    def roles(self, symbols: Int[Tensor, "batch position"]) -> dict[str, Int[Tensor, "batch query"]]:
        """Every symbol of the records that a query leads to, such as `x2 of pair 2`; -1 for a query that leads nowhere.

        Values are numbered as in `parents`; a record of more than two symbols is called so.
        """
        _, places, known = self.follow(symbols)
        roles = {}
        for step in range(self.steps, 0, -1):
            parents, value = self.graph[step - 1], places[step - 1].where(known, -1)
            kind = "pair" if len(parents) == 1 else "record"
            for before, parent in zip(range(len(parents), 0, -1), parents, strict=True):
                roles[f"x{parent} of {kind} {step}"] = torch.where(known, value - before, -1)
            roles[f"x{self.roots + step - 1} of {kind} {step}"] = value
        return roles

    def query_roles(self, symbols: Int[Tensor, "batch position"]) -> dict[str, Int[Tensor, "batch query"]]:
        """`query x0` and the queries' other symbols."""
        places = self.query_places(symbols.shape[1])
        return {f"query x{root}": places[:, root].expand(len(symbols), -1) for root in range(self.roots)}

    def way(self, names: Sequence[str], query: int, path: Sequence[int], known: bool) -> str:
        """A query's way in words, such as `query A -> B at 7 -> C at 1`, given the name of the symbol at each place."""
        start = len(names) - self.asking + query * self.roots
        reads = [f"{names[at]} at {at}" for at in path] if known else ["no single match"]
        return " -> ".join([f"query {' '.join(names[start : start + self.roots])}", *reads])

    def parts(self, length: int) -> list[str]:
        """What each position is in words: `parent` or `value` in a record, `query`; between them a `marker`."""
        parts = ["marker"] * (length - self.asking) + ["query"] * self.asking
        for block in self.blocks:
            columns = ["parent"] * len(block.parents) + ["value"]
            parts[block.start : block.stop] = columns * len(block.ids)
        return parts


def _distinct(symbols: Int[Tensor, "batch position"]) -> Int[Tensor, "batch"]:
    """How many different numbers each row has."""
    return symbols.sort(dim=1).values.diff(dim=1).ne(0).sum(dim=1) + 1
