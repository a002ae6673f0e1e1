"""Read sequences of an anchor function: find the rule that fits, its anchors and keys, and its answer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Int

from anchorlab.tasks.anchor.expression import Expression, Reading, Step
from anchorlab.tasks.anchor.latent import Latent
from anchorlab.tasks.anchor.operation import Operation
from anchorlab.tasks.anchor.placement import Layout
from anchorlab.tasks.anchor.rule import Rule
from anchorlab.tasks.anchor.separation import Separation


@dataclass(frozen=True)
class Found:
    """The latents and answers that the rules find in sequences.

    Shapes
        answer: `[row]`, -1 without an answer
        steps: the operations applied, each with its text, its anchor's position `[row]` and its result `[row]`
        rivals: the answer of each rival rule, by name, each `[row]`
    """

    latent: Latent
    answer: Int[np.ndarray, "row"]
    steps: tuple[tuple[str, Int[np.ndarray, "row"], Int[np.ndarray, "row"]], ...] = ()
    rivals: Mapping[str, Int[np.ndarray, "row"]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Reader:
    """The rules of an anchor function, ready to read latents and answers from sequences.

    operations: the operation of each anchor
    exceptions: operations of particular pairs of anchors, which `pair(A, B, x)` applies in place of the anchors' own
    rivals: other answers over the same patterns, by name
    trained: the pairs of anchors in the training data, which `trained(A, B, x)` looks up
    """

    layout: Layout
    separation: Separation
    rules: Mapping[str, Rule]
    operations: Mapping[int, Operation]
    exceptions: Mapping[tuple[int, int], Operation]
    rivals: Mapping[str, Expression]
    trained: frozenset[tuple[int, int]]

    @property
    def size(self) -> int:
        """The number of tokens."""
        return self.layout.vocabulary.size

    def read(self, sequences: Int[np.ndarray, "row position"]) -> Found:
        """Return the latents and answers, read from the tokens alone; -1 if no rule fits, or several do."""
        return self.answer(self.layout.find(sequences), sequences, rivals=True)

    def side(self, sequences: Int[np.ndarray, "row position"]) -> Int[np.ndarray, "row"]:
        """Return the split of each sequence as an index into `separation.splits`.

        -1 marks a sequence that fits no rule, holds tokens other than items and anchors, or mixes splits.
        """
        latent, vocabulary = self.layout.find(sequences), self.layout.vocabulary
        ordinary = vocabulary.is_item(sequences) | vocabulary.is_anchor(sequences)
        return np.where(ordinary.all(axis=1), self.separation.side(latent, self.layout.placement.length), -1)

    def answer(self, latent: Latent, sequences: Int[np.ndarray, "row position"] | None, rivals: bool = False) -> Found:
        """Return the answers to latents by their rules, -1 without an answer; with `rivals`, also the rivals' answers.

        `sequences` may be None if no answer reads noise.
        """
        answer = np.full(len(latent), -1)
        steps: list[tuple[str, np.ndarray, np.ndarray]] = []
        others = {name: np.full(len(latent), -1) for name in self.rivals} if rivals else {}
        for index, rule in enumerate(self.rules.values()):
            mine = np.flatnonzero(latent.rule == index)
            if not len(mine):
                continue
            reading = self._reading(latent.select(mine), rule, None if sequences is None else sequences[mine])
            answer[mine], done = self._evaluate(rule.answer, reading)
            for step in done:
                position, value = np.full(len(latent), -1), np.full(len(latent), -1)
                position[mine], value[mine] = reading.positions[step.slot], step.value
                steps.append((step.text, position, value))
            for name, other in others.items():
                other[mine], _ = self._evaluate(self.rivals[name], reading)
        return Found(latent, answer, tuple(steps), others)

    def _reading(self, latent: Latent, rule: Rule, sequences: np.ndarray | None) -> Reading:
        """Return the input of a rule's expressions, for latents of this rule."""
        anchors, keys = rule.pattern.anchors, rule.pattern.keys
        index, results, is_item = self._tables
        return Reading(
            sequences=sequences,
            tokens={
                **{slot: latent.anchors[:, column] for column, slot in enumerate(anchors)},
                **{slot: latent.keys[:, column] for column, slot in enumerate(keys)},
            },
            positions={slot: latent.anchor_positions[:, column] for column, slot in enumerate(anchors)},
            anchor_index=index,
            results=results,
            is_item=is_item,
            exceptions=self._exception_results,
            trained=self.trained,
        )

    @cached_property
    def _tables(self) -> tuple[Int[np.ndarray, "token"], Int[np.ndarray, "anchor token"], Bool[np.ndarray, "token"]]:
        """The row of each anchor in the results, the results of each operation, and which tokens are items."""
        vocabulary = self.layout.vocabulary
        index = np.zeros(self.size, dtype=np.int64)
        index[list(vocabulary.anchors)] = np.arange(len(vocabulary.anchors))
        results = np.stack([self.operations[anchor].results(self.size) for anchor in vocabulary.anchors])
        return index, results, vocabulary.is_item(np.arange(self.size))

    @cached_property
    def _exception_results(self) -> dict[tuple[int, int], Int[np.ndarray, "token"]]:
        return {pair: operation.results(self.size) for pair, operation in self.exceptions.items()}

    def _evaluate(self, expression: Expression, reading: Reading) -> tuple[np.ndarray, list[Step]]:
        """Return the answers, -1 if there is none or it is not a token, and the operations applied."""
        value, found, steps = expression.evaluate(reading)
        return np.where(found & (value >= 0) & (value < self.size), value, -1), steps
