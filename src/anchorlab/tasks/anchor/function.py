"""Anchor functions: the product of vocabulary, operations, placement, separation and scoring."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from pydantic import Field, model_validator
from torch import Tensor

from anchorlab.axes import TaskShape
from anchorlab.errors import SpecError
from anchorlab.rng import generator
from anchorlab.tasks.alias import AliasTable
from anchorlab.tasks.anchor.operation import Operation
from anchorlab.tasks.anchor.placement import MOST_ARRANGEMENTS, Latent, Placement
from anchorlab.tasks.anchor.scoring import Scoring
from anchorlab.tasks.anchor.separation import TEST, TRAIN, AnySeparation, ModularResidue
from anchorlab.tasks.anchor.vocabulary import Vocabulary
from anchorlab.tasks.registry import task_family
from anchorlab.tasks.task import Answer, Batch, Example, Scores, Task, Token, TraceStep

_BLOCK = 16_384


@dataclass(frozen=True)
class Proof:
    """What enumeration of every latent shows about a separation.

    `arrangements`, `keys` and `targets` count the distinct latents, key tokens and answers of each split. `disjoint`:
    no latent is on two sides; `agreeing`: written into a sequence, every latent is read back on its own side;
    `keys_covered` and `targets_covered`: every key and every answer of test occurs as such in training.
    """

    arrangements: dict[str, int]
    keys: dict[str, int]
    targets: dict[str, int]
    disjoint: bool
    agreeing: bool
    keys_covered: bool
    targets_covered: bool

    @property
    def holds(self) -> bool:
        """Whether everything that a separation owes is so."""
        return self.disjoint and self.agreeing and self.keys_covered and self.targets_covered


@dataclass(frozen=True)
class _Table:
    """Every latent once, with its answer, its side and its group (which anchors)."""

    latent: Latent
    answer: Int[np.ndarray, "row"]
    side: Int[np.ndarray, "row"]
    group: Int[np.ndarray, "row"]
    groups: tuple[str, ...]


@task_family("anchor")
class AnchorFunction(Task):
    """A function of the key that its anchors name; every other token is noise.

    >>> AnchorFunction(operations={3: "+5"}).sample("train", 2, seed=0).inputs.shape
    torch.Size([2, 9])

    Sequences: anchors uniform, then their position uniform among those where the split has keys, then the key uniform
    among those that the separation allows there; noise uniform over the items.
    Errors: `SpecError` where the parts do not fit: no key left for a split, a key or answer that test asks for and
    training never shows, an operation that leaves the vocabulary.
    Source: anchor function paper, section 3.1; with one anchor equations (1)-(4), with two equation (5).
    """

    family: Literal["anchor"] = "anchor"
    vocabulary: Vocabulary = Vocabulary()
    operations: dict[int, Operation] = Field(default_factory=lambda: {3: Operation()})
    placement: Placement = Placement()
    separation: AnySeparation = ModularResidue()
    scoring: Scoring = Scoring()

    @model_validator(mode="after")
    def _fits(self) -> "AnchorFunction":
        anchors = self.vocabulary.anchors
        if set(self.operations) != set(anchors):
            raise SpecError(
                "operations", f"are given for {sorted(self.operations)}", f"give one for each of {sorted(anchors)}"
            )
        for part, check in (
            ("placement", lambda: self.placement.check_anchors(anchors)),
            ("separation", lambda: self.separation.check(self.vocabulary, self.placement)),
            ("scoring", lambda: self.scoring.within(self.placement.length)),
        ):
            try:
                check()
            except SpecError as error:
                raise SpecError(f"{part}.{error.field}", error.problem, error.remedy) from None
        many = len(anchors) ** self.placement.anchors * self.placement.length * self.vocabulary.item_count
        if many > MOST_ARRANGEMENTS:
            raise SpecError(
                "placement", f"makes more than {MOST_ARRANGEMENTS} arrangements", "use fewer anchors or items"
            )
        self._check_coverage()
        return self

    def _check_coverage(self) -> None:
        table = self._table
        train, test = table.side == TRAIN, table.side == TEST
        for name, side in zip(self.splits, (train, test), strict=True):
            if not side.any():
                raise SpecError("separation", f"leaves no {name} keys", "hold out other keys")
        if not self.separation.covering:
            return
        for what, tokens in (("key", table.latent.key), ("answer", table.answer)):
            unseen = np.setdiff1d(tokens[test], tokens[train])
            if unseen.size:
                raise SpecError(
                    "separation",
                    f"asks in test for token {unseen[0]}, which is never a {what} in training"
                    if what == "key"
                    else f"asks in test for the answer {unseen[0]}, which training never shows",
                    "hold out fewer keys, or let it pass with covering = false",
                )

    @cached_property
    def _table(self) -> _Table:
        latent = self.placement.arrangements(self.vocabulary)
        combinations, group = np.unique(latent.anchors, axis=0, return_inverse=True)
        return _Table(
            latent=latent,
            answer=self._apply(latent)[-1],
            side=self.separation.side(latent, self.placement),
            group=group.reshape(-1),
            groups=tuple(",".join(str(anchor) for anchor in anchors) for anchors in combinations.tolist()),
        )

    def _apply(self, latent: Latent) -> list[Int[np.ndarray, "row"]]:
        """The key and the value after each anchor's operation; -1 in rows without a key."""
        values = [latent.key]
        for index in range(latent.anchors.shape[1]):
            before, after = values[-1], np.full(len(latent), -1)
            for anchor, operation in self.operations.items():
                mine = latent.anchors[:, index] == anchor
                keys = before[mine]
                if not operation.defined(keys, self.vocabulary.size).all():
                    outside = keys[~operation.defined(keys, self.vocabulary.size)][0]
                    raise SpecError(
                        f"operations.{anchor}",
                        f"{operation} takes token {outside} out of the {self.vocabulary.size} tokens",
                        "use a larger vocabulary.size or a smaller step",
                    )
                after[mine] = operation(keys)
            values.append(after)
        return values

    @property
    def shape(self) -> TaskShape:
        """Tokens in, tokens out."""
        return TaskShape("tokens", self.placement.length, self.vocabulary.size, self.vocabulary.size)

    @cached_property
    def _draws(self) -> dict[str, tuple[Int[np.ndarray, "row"], AliasTable]]:
        """Per split the rows of the table to draw from, and how likely each is."""
        table, draws = self._table, {}
        for index, split in enumerate(self.splits):
            rows = np.flatnonzero(table.side == index)
            group, start = table.group[rows], table.latent.anchor_position[rows]
            cell = group * self.placement.length + start
            cells, keys_in_cell = np.unique(cell, return_counts=True)
            cell_group, cells_in_group = np.unique(cells // self.placement.length, return_counts=True)
            of_cell = keys_in_cell[np.searchsorted(cells, cell)]
            of_group = cells_in_group[np.searchsorted(cell_group, group)]
            weights = 1.0 / (of_cell * of_group)
            draws[split] = (rows, AliasTable.build(weights[None, :]))
        return draws

    def sample(self, split: str, n: int, seed: int) -> Batch:
        """`n` sequences of a split; latents `anchors` `[batch anchor]`, `anchor_position`, `key`, `key_position`.

        Errors: `SpecError` for an unknown split.
        """
        self.check_draw(split, n)
        random = generator(seed, "sequences", split)
        table, (rows, alias) = self._table, self._draws[split]
        chosen = np.empty(n, dtype=np.int64)
        inputs = torch.empty((n, self.placement.length), dtype=torch.int64)
        into = inputs.numpy()
        first, last = self.vocabulary.items
        # Narrow integers are drawn fastest, and a block at a time stays in the cache.
        for start in range(0, n, _BLOCK):
            count = min(_BLOCK, n - start)
            block = rows[alias.draw(random, np.zeros(count, dtype=np.int64))]
            tokens = random.integers(first, last + 1, size=(count, self.placement.length), dtype=np.uint16)
            self.placement.write(tokens, table.latent.select(block))
            into[start : start + count] = tokens
            chosen[start : start + count] = block
        latent = table.latent.select(chosen)
        answers = self._spread(torch.from_numpy(table.answer[chosen]))
        one_group = len(table.groups) == 1
        return Batch(
            inputs=inputs,
            targets=answers,
            answers=answers,
            positions=self.positions,
            split=split,
            group=None if one_group else torch.from_numpy(table.group[chosen]),
            groups=("all",) if one_group else table.groups,
            latents={
                "anchors": torch.from_numpy(latent.anchors),
                "anchor_position": torch.from_numpy(latent.anchor_position),
                "key": torch.from_numpy(latent.key),
                "key_position": torch.from_numpy(latent.key_position),
            },
        )

    @property
    def positions(self) -> Int[Tensor, "scored"]:
        """The scored positions, the same for every sequence."""
        return torch.tensor(self.scoring.within(self.placement.length), dtype=torch.int64)

    def _spread(self, answer: Shaped[Tensor, "batch"]) -> Shaped[Tensor, "batch scored"]:
        return answer.unsqueeze(-1).repeat(1, len(self.scoring.positions))

    def oracle(self, inputs: Int[Tensor, "batch position"]) -> Answer:
        """The answers, with the anchors found, the key read and the value after each operation."""
        latent = self.placement.find(inputs.cpu().numpy(), self.vocabulary)
        values = [torch.from_numpy(value) for value in self._apply(latent)]
        start, key_position = torch.from_numpy(latent.anchor_position), torch.from_numpy(latent.key_position)
        steps = [
            TraceStep(f"anchor {index + 1}", torch.where(start < 0, -1, start + index), torch.from_numpy(anchor))
            for index, anchor in enumerate(latent.anchors.T.copy())
        ]
        steps.append(TraceStep("key", key_position, values[0]))
        steps += [
            TraceStep(f"operation {index + 1}", torch.where(start < 0, -1, start + index), value)
            for index, value in enumerate(values[1:])
        ]
        return Answer(self._spread(values[-1]), self._spread(values[-1] >= 0), tuple(steps))

    def split_of(self, inputs: Int[Tensor, "batch position"]) -> Int[Tensor, "batch"]:
        """0 for train, 1 for test, -1 for a sequence without exactly one arrangement among items."""
        tokens = inputs.cpu().numpy()
        latent = self.placement.find(tokens, self.vocabulary)
        ordinary = self.vocabulary.is_item(tokens) | self.vocabulary.is_anchor(tokens)
        belongs = (latent.key >= 0) & ordinary.all(axis=1)
        return torch.from_numpy(np.where(belongs, self.separation.side(latent, self.placement), -1))

    def metrics(self, outputs: Float[Tensor, "batch scored output"], batch: Batch) -> dict[str, Tensor]:
        """`accuracy`: the most probable token is the answer."""
        return {"accuracy": Scores.correct(outputs, batch.answers)}

    def proof(self) -> Proof:
        """Lists every latent, writes it into a sequence, reads it back, and counts what each split covers."""
        table = self._table
        sequences = np.full((len(table.latent), self.placement.length), self.vocabulary.items[0])
        self.placement.write(sequences, table.latent)
        read = self.placement.find(sequences, self.vocabulary)
        as_rows = np.column_stack([table.latent.anchors, table.latent.anchor_position, table.latent.key])
        sides = [np.flatnonzero(table.side == side) for side in (TRAIN, TEST)]
        sets = [{tuple(row) for row in as_rows[side].tolist()} for side in sides]
        keys = [set(table.latent.key[side].tolist()) for side in sides]
        targets = [set(table.answer[side].tolist()) for side in sides]
        same = np.column_stack([read.anchors, read.anchor_position, read.key]) == as_rows
        agreeing = same.all() and (self.split_of(torch.from_numpy(sequences)).numpy() == table.side).all()
        return Proof(
            arrangements=dict(zip(self.splits, map(len, sets), strict=True)),
            keys=dict(zip(self.splits, map(len, keys), strict=True)),
            targets=dict(zip(self.splits, map(len, targets), strict=True)),
            disjoint=not sets[TRAIN] & sets[TEST],
            agreeing=bool(agreeing),
            keys_covered=keys[TEST] <= keys[TRAIN],
            targets_covered=targets[TEST] <= targets[TRAIN],
        )

    def render(self, inputs: Int[Tensor, "batch position"]) -> Sequence[Example]:
        """The sequences with the parts of their tokens and the oracle's trace in words."""
        latent = self.placement.find(inputs.cpu().numpy(), self.vocabulary)
        values = np.stack(self._apply(latent), axis=1)
        sides = self.split_of(inputs).tolist()
        return [
            self._render(tokens, latent.select(np.array([row])), values[row].tolist(), sides[row])
            for row, tokens in enumerate(inputs.tolist())
        ]

    def _render(self, tokens: list[int], latent: Latent, values: list[int], side: int) -> Example:
        split = self.splits[side] if side >= 0 else "nowhere"
        if values[0] < 0:
            plain = tuple(Token(str(token), "noise") for token in tokens)
            return Example(plain, ("no single arrangement of anchors and key",), "unknown", split)
        start, key_position = int(latent.anchor_position[0]), int(latent.key_position[0])
        roles = ["noise"] * len(tokens)
        roles[start : start + self.placement.anchors] = ["anchor"] * self.placement.anchors
        roles[key_position] = "key"
        anchors = latent.anchors[0].tolist()
        trace = [f"anchor {anchor} at position {start + index}" for index, anchor in enumerate(anchors)]
        trace.append(f"key {values[0]} at position {key_position}")
        trace += [
            f"{self.operations[anchor]} takes {before} to {after}"
            if self.operations[anchor].steps
            else f"{after} as it is"
            for anchor, before, after in zip(anchors, values, values[1:], strict=False)
        ]
        return Example(
            tuple(Token(str(token), role) for token, role in zip(tokens, roles, strict=True)),
            tuple(trace), str(values[-1]), split,
        )  # fmt: skip
