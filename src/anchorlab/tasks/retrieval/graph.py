"""The graph of a retrieval problem: the dependencies of steps, the places of records, and how to follow a query."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.tasks.batch import Example, Token

_LONGEST = 65_536


@dataclass(frozen=True)
class StepTable:
    """The records of one step: for each combination of its parents' chains, the parents' symbols and a value.

    start: the position of the first record
    parents: the numbers of the values that the step depends on
    ids: the symbol numbers of each record, `[record column]`; the last column is the value
    """

    start: int
    parents: tuple[int, ...]
    ids: Int[np.ndarray, "record column"]

    @property
    def stop(self) -> int:
        """The position after the last record."""
        return self.start + self.ids.size


@dataclass(frozen=True)
class StepGraph:
    """N chains of values, each step's value depending on earlier ones; a sequence holds the steps' records and queries.

    chains, steps: the numbers N of chains and D of steps
    roots: the number of symbols of a query, the values 0 .. roots - 1 of a chain; step s gives value roots + s - 1
    parents: the numbers of the values that each step depends on; (): each step depends on the value before its own

    A step with k parents has a record for each of the N^k combinations of chains. If all parents belong to one chain,
    the record's value belongs to this chain; a mixed record has a value of its own. All symbols of a sequence differ.
    They are numbered value by value, N each, followed by the values of mixed records.

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
            raise SpecError("parents", f"are given for {len(self.parents)} steps", f"give them for {self.steps}")
        for step, parents in enumerate(self.parents):
            if not parents or list(parents) != sorted({*parents} & {*range(self.roots + step)}):
                problem = f"{list(parents)} are not some of the values 0 to {self.roots + step - 1}, in order"
                raise SpecError(f"parents.{step}", problem, "name each value it depends on once")
        if self.length + self.asking > _LONGEST:
            problem = f"{self.chains} make {self.length + self.asking} positions"
            raise SpecError("chains", problem, f"use fewer chains or parents, at most {_LONGEST} positions")

    @property
    def step_parents(self) -> tuple[tuple[int, ...], ...]:
        """The parents of each step; in a chain, the value of the step before."""
        return self.parents or tuple((step,) for step in range(self.steps))

    @property
    def values(self) -> int:
        """The number of values of a chain."""
        return self.roots + self.steps

    @property
    def symbols(self) -> int:
        """The number of distinct symbols in a sequence."""
        mixed = sum(int(self.chains ** len(parents)) - self.chains for parents in self.step_parents)
        return self.chains * self.values + mixed

    @property
    def length(self) -> int:
        """The number of positions that the records of all steps take."""
        return sum(int(self.chains ** len(parents)) * (len(parents) + 1) for parents in self.step_parents)

    @property
    def asking(self) -> int:
        """The number of positions that the queries take, at the end of a sequence."""
        return self.chains * self.roots

    @cached_property
    def tables(self) -> tuple[StepTable, ...]:
        """The table of each step, step 1 first, although step D comes first in the sequence."""
        ids, mixed = [], self.chains * self.values
        for step, parents in enumerate(self.step_parents):
            records = []
            for combination in product(range(self.chains), repeat=len(parents)):
                # parents of one chain lead to this chain's next value, and mixed parents to a symbol of their own
                own = len(set(combination)) == 1
                value = (self.roots + step) * self.chains + combination[0] if own else mixed
                mixed += not own
                key = [parent * self.chains + chain for parent, chain in zip(parents, combination, strict=True)]
                records.append([*key, value])
            ids.append(np.array(records))
        starts = np.cumsum([0, *(one.size for one in reversed(ids))])[:-1][::-1].tolist()
        return tuple(StepTable(*each) for each in zip(starts, self.step_parents, ids, strict=True))

    def query_places(self, length: int) -> Int[Tensor, "query root"]:
        """Return the positions of each query's symbols in sequences of this length; its last position is scored."""
        return torch.arange(length - self.asking, length).reshape(self.chains, self.roots)

    def lay_out(
        self, orders: Sequence[Int[np.ndarray, "batch _"]], queries: Int[np.ndarray, "batch query"]
    ) -> Int[np.ndarray, "batch position"]:
        """Return the symbol number at each position, for the records and then the queries.

        `orders` gives, for each step, the record at each place; `queries` gives the chain of each query.
        """
        rows = len(queries)
        placed = np.empty((rows, self.length + self.asking), dtype=np.int64)
        for table, order in zip(self.tables, orders, strict=True):
            placed[:, table.start : table.stop] = table.ids[order].reshape(rows, table.ids.size)
        placed[:, self.length :] = (np.arange(self.roots) * self.chains + queries[:, :, None]).reshape(
            rows, self.asking
        )
        return placed

    def _read(self, table: StepTable, symbols: Int[Tensor, "batch position"]) -> Int[Tensor, "batch record column"]:
        """Return the symbols of one step's records."""
        return symbols[:, table.start : table.stop].reshape(len(symbols), *table.ids.shape)

    def follow(
        self, symbols: Int[Tensor, "batch position"]
    ) -> tuple[Int[Tensor, "value batch query"], Int[Tensor, "step batch query"], Bool[Tensor, "batch query"]]:
        """Follow each query from step to step.

        Returns: the values of each query, the position at which each step's value was read, and whether exactly one
        record matched at every step.
        """
        values = list(symbols[:, self.query_places(symbols.shape[1])].unbind(dim=2))
        places, known = [], torch.ones(values[0].shape, dtype=torch.bool)
        for table in self.tables:
            wanted = torch.stack([values[parent] for parent in table.parents], dim=-1)
            # compare the parents of every record with the values that each query has reached: `[batch query record]`
            matches = (self._read(table, symbols)[:, None, :, :-1] == wanted[:, :, None]).all(dim=-1)
            known &= matches.sum(dim=-1) == 1
            record = matches.to(torch.uint8).argmax(dim=-1)
            places.append(table.start + record * table.ids.shape[1] + len(table.parents))
            values.append(symbols.gather(1, places[-1]))
        return torch.stack(values), torch.stack(places), known

    def well_formed(self, symbols: Int[Tensor, "batch position"]) -> Bool[Tensor, "batch"]:
        """Return whether records and queries form N chains: every record occurs once, and all symbols differ."""
        # The loop checks that all parents are values of the queries' chains. Then at most `self.symbols` symbols can
        # be distinct, so this count means that all of them differ.
        values, _, known = self.follow(symbols)
        body = torch.cat([symbols[:, : self.length], symbols[:, -self.asking :]], dim=1)
        legal = known.all(dim=1) & (_distinct(body) == self.symbols)
        for table in self.tables:
            records = self._read(table, symbols)
            code = torch.zeros(records.shape[:2], dtype=torch.int64)
            for column, parent in enumerate(table.parents):
                of_chain = records[:, :, column, None] == values[parent][:, None]  # [batch record chain]
                legal &= of_chain.any(dim=2).all(dim=1)
                # number each record's combination of chains; all combinations occur if the numbers all differ
                code = code * self.chains + of_chain.to(torch.uint8).argmax(dim=2)
            legal &= _distinct(code) == len(table.ids)
        return legal

    def roles(self, symbols: Int[Tensor, "batch position"]) -> dict[str, Int[Tensor, "batch query"]]:
        """Return the positions of the symbols in each query's records, such as `x2 of pair 2`; -1 without an answer.

        Values are numbered as in `parents`; a record of more than two symbols is called `record`, not `pair`.
        """
        _, places, known = self.follow(symbols)
        roles = {}
        for step in range(self.steps, 0, -1):
            parents, value = self.step_parents[step - 1], places[step - 1].where(known, -1)
            kind = "pair" if len(parents) == 1 else "record"
            for before, parent in zip(range(len(parents), 0, -1), parents, strict=True):
                roles[f"x{parent} of {kind} {step}"] = torch.where(known, value - before, -1)
            roles[f"x{self.roots + step - 1} of {kind} {step}"] = value
        return roles

    def query_roles(self, symbols: Int[Tensor, "batch position"]) -> dict[str, Int[Tensor, "batch query"]]:
        """Return the positions of `query x0` and of the queries' other symbols."""
        places = self.query_places(symbols.shape[1])
        return {f"query x{root}": places[:, root].expand(len(symbols), -1) for root in range(self.roots)}

    def example(
        self,
        names: Sequence[str],
        paths: Sequence[Sequence[int]],
        answers: Sequence[str],
        known: Sequence[bool],
        split: str,
    ) -> Example:
        """Return a sequence for display, with each query's path, such as `query A -> B at 7 -> C at 1`.

        `names` are the names of the symbols at all positions, and a path the positions at which its steps were read.
        Answers that are not `known`, because some step has no single match, are shown as `unknown`.
        """
        places = self.query_places(len(names)).tolist()
        trace = []
        for query, path, sure in zip(places, paths, known, strict=True):
            reads = [f"{names[at]} at {at}" for at in path] if sure else ["no single match"]
            trace.append(" -> ".join([f"query {' '.join(names[at] for at in query)}", *reads]))
        shown = ", ".join(answer if sure else "unknown" for answer, sure in zip(answers, known, strict=True))
        tokens = tuple(Token(name, part) for name, part in zip(names, self._parts(len(names)), strict=True))
        return Example(tokens, tuple(trace), shown, split)

    def _parts(self, length: int) -> list[str]:
        """Return the role of each position: `parent` or `value` in a record, `query`, or `marker` between them."""
        parts = ["marker"] * (length - self.asking) + ["query"] * self.asking
        for table in self.tables:
            columns = ["parent"] * len(table.parents) + ["value"]
            parts[table.start : table.stop] = columns * len(table.ids)
        return parts


def check_asked_steps(asked: tuple[int, ...], steps: int, curriculum: bool) -> None:
    """Raise `SpecError` for steps that are not ascending within 1 .. D, or that are given without a curriculum."""
    if list(asked) != sorted({*asked} & {*range(1, steps + 1)}):
        problem = f"{list(asked)} are not some of the steps 1 to {steps}, in order"
        raise SpecError("asked_steps", problem, "give each once, such as 1,3, or none for all")
    if asked and not curriculum:
        problem = "restrict a curriculum, but implicit_curriculum is off"
        raise SpecError("asked_steps", problem, "turn it on, or leave them out")


def asked_steps(asked: tuple[int, ...], steps: int, curriculum: bool) -> tuple[int, ...]:
    """Return the steps that queries ask for: `asked` if given, else all steps under a curriculum, else the last."""
    every = tuple(range(1, steps + 1))
    return asked or (every if curriculum else every[-1:])


def _distinct(numbers: Int[Tensor, "batch column"]) -> Int[Tensor, "batch"]:
    """Return the number of distinct entries of each row."""
    return numbers.sort(dim=1).values.diff(dim=1).ne(0).sum(dim=1) + 1
