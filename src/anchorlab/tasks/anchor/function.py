"""Anchor functions: the product of vocabulary, rules with their operations, placement, separation and scoring."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Literal, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from pydantic import Field, model_validator
from torch import Tensor

from anchorlab.axes import TaskShape
from anchorlab.errors import SpecError
from anchorlab.rng import generator
from anchorlab.tasks.anchor.drawing import Drawing, draw_from
from anchorlab.tasks.anchor.expression import Expression, Reading, Step
from anchorlab.tasks.anchor.labels import Labels
from anchorlab.tasks.anchor.latent import Latent
from anchorlab.tasks.anchor.operation import Operation
from anchorlab.tasks.anchor.placement import Layout, Placement
from anchorlab.tasks.anchor.proof import prove, prove_coverage
from anchorlab.tasks.anchor.rendering import render
from anchorlab.tasks.anchor.rule import Rule, check_names
from anchorlab.tasks.anchor.scoring import Scoring
from anchorlab.tasks.anchor.separation import AnySeparation, ModularResidue
from anchorlab.tasks.anchor.vocabulary import Vocabulary
from anchorlab.tasks.proof import Proof
from anchorlab.tasks.registry import task_family
from anchorlab.tasks.task import Answer, Batch, Example, Scores, Task, TraceStep

Result = TypeVar("Result")

_BLOCK = 16_384
_MOST_GROUPS = 64
_MOST_REDRAWS = 1000


@dataclass(frozen=True)
class Found:
    """What the rules say of sequences: latents, answers (-1: none), the operations applied, and each rival's answer."""

    latent: Latent
    answer: Int[np.ndarray, "row"]
    steps: tuple[tuple[str, Int[np.ndarray, "row"], Int[np.ndarray, "row"]], ...] = ()
    rivals: Mapping[str, Int[np.ndarray, "row"]] = field(default_factory=dict)


@task_family("anchor")
class AnchorFunction(Task):
    """A function of the keys that its anchors name; every other token is noise.

    `rules` say what stands in a sequence and what is to be answered, `operations` what each anchor does to a key:

    >>> AnchorFunction(operations={3: "+5"}).sample("train", 2, seed=0).inputs.shape
    torch.Size([2, 9])
    >>> swap = AnchorFunction(rules={"sum": "3 x y -> (x + y) // 2"}, operations={3: "x"})

    `exceptions` gives pairs of anchors an operation of their own, which `pair(A, B, x)` looks up. `rivals` are other
    rules that might explain a model's answers, over the same patterns; agreement with each is measured. `shares` sets
    how much of the training data each group has, exactly and not only on average. `labels` makes labels statistical.
    `group_by` says what the groups of evaluation are: combinations of anchors, rules, changed labels, or none.

    Sequences: rules uniform, then their anchors, then positions among those where the split has keys, then keys uniform
    among those that the separation allows there; noise uniform over the items. What is drawn is written and read back;
    a sequence that several rules fit, or that has no answer, is drawn again.
    Errors: `SpecError` where the parts do not fit: no key left for a split, a key or answer that test asks for and
    training never shows, an operation that leaves the vocabulary.
    Source: anchor function paper, section 3.1, equation (7).
    """

    family: Literal["anchor"] = "anchor"
    vocabulary: Vocabulary = Vocabulary()
    operations: dict[int, Operation] = Field(default_factory=lambda: {3: Operation()})
    exceptions: dict[str, Operation] = Field(default_factory=dict)
    rules: dict[str, Rule] = Field({"rule": Rule.parse("A x -> A(x)")}, min_length=1, max_length=64)
    rivals: dict[str, str] = Field(default_factory=dict, max_length=16)
    placement: Placement = Placement()
    separation: AnySeparation = ModularResidue()
    scoring: Scoring = Scoring()
    labels: Labels | None = None
    shares: dict[str, float] = Field(default_factory=dict)
    group_by: Literal["anchors", "rule", "label", "nothing"] = "anchors"

    @model_validator(mode="after")
    def _fits(self) -> "AnchorFunction":
        anchors = self.vocabulary.anchors
        if set(self.operations) != set(anchors):
            raise SpecError(
                "operations", f"are given for {sorted(self.operations)}", f"give one for each of {sorted(anchors)}"
            )
        for name, text in self.rivals.items():
            rival = _within(f"rivals.{name}", partial(Expression, text))
            for rule in self.rules.values():
                check_names(rival, rule.pattern, f"rivals.{name}")
        self.pairs  # noqa: B018  exceptions that cannot be read are refused here
        patterns = {name: rule.pattern for name, rule in self.rules.items()}
        _within("placement", lambda: self.placement.check(patterns, self.vocabulary))
        layout = _within("placement", lambda: self.layout)
        _within("separation", lambda: self.separation.check(layout))
        _within("scoring", lambda: self.scoring.within(self.placement.length))
        if len(layout.frames) * self.vocabulary.item_count * layout.slots > 2**26:
            raise SpecError("placement", "makes too many frames for this many items", "use fewer anchors or items")
        if self.labels is None and self.group_by == "label":
            raise SpecError("group_by", "labels are not statistical", "give labels, or group by anchors")
        for name, drawing in zip(self.splits, self.drawings, strict=True):
            if drawing is None:
                raise SpecError("separation", f"leaves no {name} keys", "hold out other keys")
        self._check_shares()
        prove_coverage(self)
        return self

    def _check_shares(self) -> None:
        drawn = set(self._training.group.tolist())
        for name, share in self.shares.items():
            if name not in self.groups or self.groups.index(name) not in drawn:
                known = [self.groups[group] for group in sorted(drawn)]
                raise SpecError(f"shares.{name}", "is no group of the training data", f"use {', '.join(known)}"[:200])
            if not share > 0:
                raise SpecError(f"shares.{name}", f"{share:g} is not above 0", "leave the group out of separation.seen")
        if self.shares and len(self.shares) < len(drawn):
            raise SpecError("shares", "leave out a group of the training data", "give one for each group")

    @property
    def splits(self) -> tuple[str, ...]:
        """`train`, then `test`, or `test on data` and `test on task` where keys and combinations are held out."""
        return self.separation.splits

    @cached_property
    def layout(self) -> Layout:
        """Everything that the patterns can do in a sequence."""
        return Layout.build([rule.pattern for rule in self.rules.values()], self.placement, self.vocabulary)

    @cached_property
    def pairs(self) -> dict[tuple[int, int], Operation]:
        """The exceptions, by their pair of anchors."""
        found = {}
        for text, operation in self.exceptions.items():
            parts = [part.strip() for part in text.split(",")]
            if len(parts) != 2 or not all(p.isdigit() and int(p) in self.vocabulary.anchors for p in parts):
                raise SpecError(f"exceptions.{text}", "is no pair of anchors", 'write two of them, such as "4,3"')
            found[int(parts[0]), int(parts[1])] = operation
        return found

    @cached_property
    def _frame_groups(self) -> tuple[Int[np.ndarray, "frame"], tuple[str, ...]]:
        """The group of each frame, and the names of the groups."""
        frames = self.layout.frames
        if self.group_by == "rule":
            return frames.rule, tuple(self.rules)
        if self.group_by == "anchors":
            found, group = np.unique(np.column_stack([frames.rule, frames.anchors]), axis=0, return_inverse=True)
            named = [",".join(str(anchor) for anchor in row[1:] if anchor >= 0) for row in found.tolist()]
            names = list(dict.fromkeys(named))
            if len(names) <= _MOST_GROUPS:
                return np.array([names.index(name) for name in named])[group.reshape(-1)], tuple(names)
        return np.zeros(len(frames), dtype=np.int64), ("all",)

    @property
    def groups(self) -> tuple[str, ...]:
        """The names of the groups by which training data is shared out and evaluation is told apart."""
        return ("unchanged", "changed") if self.group_by == "label" else self._frame_groups[1]

    @cached_property
    def drawings(self) -> tuple[Drawing | None, ...]:
        """What each split draws from."""
        return draw_from(self.layout, self.separation, self._frame_groups[0])

    @property
    def _training(self) -> Drawing:
        drawing = self.drawings[0]
        assert drawing is not None  # refused at construction
        return drawing

    @cached_property
    def _results(self) -> tuple[Int[np.ndarray, "token"], Int[np.ndarray, "anchor token"]]:
        size, anchors = self.vocabulary.size, self.vocabulary.anchors
        index = np.zeros(size, dtype=np.int64)
        index[list(anchors)] = np.arange(len(anchors))
        return index, np.stack([self.operations[anchor].results(size) for anchor in anchors])

    def reading(self, latent: Latent, rule: int, sequences: np.ndarray | None) -> Reading:
        """What the expressions of a rule may look at, for latents of this rule."""
        pattern = list(self.rules.values())[rule].pattern
        held = {
            **{slot: latent.anchors[:, index] for index, slot in enumerate(pattern.anchors)},
            **{slot: latent.keys[:, index] for index, slot in enumerate(pattern.keys)},
        }
        places = {slot: latent.anchor_positions[:, index] for index, slot in enumerate(pattern.anchors)}
        index, results = self._results
        return Reading(
            sequences, held, places, index, results, self.vocabulary.is_item(np.arange(self.vocabulary.size)),
            {pair: operation.results(self.vocabulary.size) for pair, operation in self.pairs.items()},
            self._trained,
        )  # fmt: skip

    @cached_property
    def _trained(self) -> frozenset[tuple[int, int]]:
        frames = self.layout.frames.select(self._training.frames)
        return frozenset((one[0], one[1]) for one in frames.anchors.tolist() if len(one) == 2)

    def answer(self, latent: Latent, sequences: np.ndarray | None, rivals: bool = False) -> Found:
        """What the rules answer, -1 where there is none; with the answers of the rivals if asked for."""
        answer = np.full(len(latent), -1)
        steps: list[tuple[str, np.ndarray, np.ndarray]] = []
        others = {name: np.full(len(latent), -1) for name in self.rivals} if rivals else {}
        for index, rule in enumerate(self.rules.values()):
            mine = np.flatnonzero(latent.rule == index)
            if not len(mine):
                continue
            reading = self.reading(latent.select(mine), index, None if sequences is None else sequences[mine])
            answer[mine], done = self._evaluate(rule.answer, reading)
            for step in done:
                position, value = np.full(len(latent), -1), np.full(len(latent), -1)
                position[mine], value[mine] = reading.positions[step.slot], step.value
                steps.append((step.text, position, value))
            for name, other in others.items():
                other[mine], _ = self._evaluate(Expression(self.rivals[name]), reading)
        return Found(latent, answer, tuple(steps), others)

    def _evaluate(self, expression: Expression, reading: Reading) -> tuple[np.ndarray, list[Step]]:
        value, found, steps = expression.evaluate(reading)
        return np.where(found & (value >= 0) & (value < self.vocabulary.size), value, -1), steps

    @property
    def shape(self) -> TaskShape:
        """Tokens in, tokens out."""
        return TaskShape("tokens", self.placement.length, self.vocabulary.size, self.vocabulary.size)

    def sample(self, split: str, n: int, seed: int) -> Batch:
        """`n` sequences of a split; latents `rule`, `anchors`, `anchor_positions`, `keys`, `key_positions`.

        Errors: `SpecError` for an unknown split, or one whose sequences hardly ever have an answer.
        """
        self.check_draw(split, n)
        drawing = self.drawings[self.splits.index(split)]
        assert drawing is not None  # refused at construction
        random = generator(seed, "sequences", split)
        copies = (self.labels.copies or 1) if self.labels else 1
        drawn = -(-n // copies)
        groups = self._shared_out(drawn, random) if self.shares and split == "train" else None
        inputs = torch.empty((drawn, self.placement.length), dtype=torch.int64)
        into, choice, keys = inputs.numpy(), np.empty(drawn, np.int64), np.empty((drawn, self.layout.slots), np.int64)
        answers, rivals = np.empty(drawn, np.int64), {name: np.empty(drawn, np.int64) for name in self.rivals}
        # A block at a time stays in the cache.
        for start in range(0, drawn, _BLOCK):
            rows = slice(start, min(drawn, start + _BLOCK))
            choice[rows] = drawing.frame(random, rows.stop - start, None if groups is None else groups[rows])
            found = self._draw(drawing, choice[rows], random, into[rows])
            keys[rows], answers[rows] = found.latent.keys, found.answer
            for name, other in found.rivals.items():
                rivals[name][rows] = other
        latent = self.layout.frames.select(drawing.frames[choice]).with_keys(keys)
        batch = self._batch(split, inputs, answers, rivals, latent, drawing.group[choice])
        by_label = self.group_by == "label"
        return batch if self.labels is None else self.labels.applied(batch, n, random, self.vocabulary.size, by_label)

    def _shared_out(self, n: int, random: np.random.Generator) -> Int[np.ndarray, "row"]:
        """The groups of `n` rows in the proportions of `shares`, exact to the last row, in random order."""
        share = np.array(list(self.shares.values())) / sum(self.shares.values()) * n
        count = np.floor(share).astype(np.int64)
        count[np.argsort(count - share, kind="stable")[: n - count.sum()]] += 1
        groups = np.repeat([self.groups.index(name) for name in self.shares], count)
        return random.permutation(groups)

    def _draw(
        self, drawing: Drawing, choice: Int[np.ndarray, "row"], random: np.random.Generator, into: np.ndarray
    ) -> Found:
        """Fills `into` with sequences of the chosen frames; those that cannot be answered are drawn again."""
        first, last = self.vocabulary.items
        frames = drawing.frames[choice]
        places = self.layout.frames.select(frames)

        def draw(rows: np.ndarray | slice) -> Found:
            keys = drawing.keys(random, choice[rows])
            latent = places.select(rows).with_keys(keys)
            tokens = random.integers(first, last + 1, size=(len(latent), self.placement.length), dtype=np.uint16)
            self.layout.write(tokens, frames[rows], latent)
            into[rows] = tokens
            found = self.answer(latent, into[rows], rivals=True)
            if not self.layout.alone:  # patterns that share their anchors' positions: does it read as it was meant?
                found.answer[self.layout.find(into[rows]).rule != latent.rule] = -1
            return found

        found = draw(slice(None))
        for _ in range(_MOST_REDRAWS):
            again = np.flatnonzero(found.answer < 0)
            if not len(again):
                return found
            new = draw(again)
            found.latent.keys[again], found.answer[again] = new.latent.keys, new.answer
            for name, other in found.rivals.items():
                other[again] = new.rivals[name]
        raise SpecError("rules", "hardly ever have an answer", "see that ties and clashes of rules are rare")

    def _batch(
        self, split: str, inputs: Tensor, answer: np.ndarray, rivals: dict[str, np.ndarray], latent: Latent,
        group: np.ndarray,
    ) -> Batch:  # fmt: skip
        answers = self._spread(torch.from_numpy(answer))
        one_group = len(self.groups) == 1 or self.group_by == "label"
        return Batch(
            inputs=inputs,
            targets=answers,
            answers=answers,
            positions=self.positions,
            split=split,
            group=None if one_group else torch.from_numpy(group),
            groups=("all",) if one_group else self.groups,
            latents={name: torch.from_numpy(value) for name, value in vars(latent).items()},
            rivals={name: self._spread(torch.from_numpy(value)) for name, value in rivals.items()},
        )

    @property
    def positions(self) -> Int[Tensor, "scored"]:
        """The scored positions, the same for every sequence."""
        return torch.tensor(self.scoring.within(self.placement.length), dtype=torch.int64)

    def _spread(self, answer: Int[Tensor, "batch"]) -> Int[Tensor, "batch scored"]:
        return answer.unsqueeze(-1).repeat(1, len(self.scoring.positions))

    def read(self, sequences: Int[np.ndarray, "row position"]) -> Found:
        """Latents and answers of any sequences, from their tokens alone; -1 where no rule fits, or several."""
        return self.answer(self.layout.find(sequences), sequences, rivals=True)

    def oracle(self, inputs: Int[Tensor, "batch position"]) -> Answer:
        """The answers, with the anchors found, the keys read and the value after each operation."""
        found = self.read(inputs.cpu().numpy())
        latent = found.latent
        steps = [
            TraceStep(f"{what} {index + 1}", torch.from_numpy(places[:, index]), torch.from_numpy(tokens[:, index]))
            for what, tokens, places in (
                ("anchor", latent.anchors, latent.anchor_positions),
                ("key", latent.keys, latent.key_positions),
            )
            for index in range(tokens.shape[1])
        ]
        steps += [
            TraceStep(text, torch.from_numpy(where), torch.from_numpy(value)) for text, where, value in found.steps
        ]
        answer = self._spread(torch.from_numpy(found.answer))
        known = answer >= 0
        if self.labels is not None and self.labels.targets == "distribution":
            answer = self.labels.distribution(answer.clamp(min=0), self.vocabulary.size)
        return Answer(answer, known, tuple(steps))

    def roles(self, batch: Batch) -> dict[str, Int[Tensor, "batch instance"]]:
        """`asked`, every `anchor 1` and every `key 1`; operations stand at their anchors and have no role."""
        named = super().roles(batch).items()
        return {name: places for name, places in named if name.startswith(("asked", "anchor ", "key "))}

    def split_of(self, inputs: Int[Tensor, "batch position"]) -> Int[Tensor, "batch"]:
        """An index into `splits`, -1 for a sequence that fits no rule, has other tokens or mixes the sides."""
        tokens = inputs.cpu().numpy()
        latent = self.layout.find(tokens)
        ordinary = self.vocabulary.is_item(tokens) | self.vocabulary.is_anchor(tokens)
        side = self.separation.side(latent, self.placement.length)
        return torch.from_numpy(np.where(ordinary.all(axis=1), side, -1))

    def metrics(self, outputs: Float[Tensor, "batch scored output"], batch: Batch) -> dict[str, Tensor]:
        """`accuracy`: the most probable token is the answer; and agreement with each rival.

        With statistical labels also the accuracy against the labels as they are, the probabilities of the answer and of
        the changed label, and how far the whole distribution is from the true one (total variation).
        """
        if self.labels is not None:
            return self.labels.metrics(outputs, batch)
        return {
            "accuracy": Scores.correct(outputs, batch.answers),
            **{f"agrees: {name}": Scores.correct(outputs, rival) for name, rival in batch.rivals.items()},
        }

    def proof(self) -> Proof:
        """Lists every latent where they are few, else tries a million sequences; what each split covers."""
        return prove(self)

    def render(self, inputs: Int[Tensor, "batch position"]) -> Sequence[Example]:
        """The sequences with the parts of their tokens and the oracle's trace in words."""
        return render(self, inputs)


def _within(field: str, call: Callable[[], Result]) -> Result:
    """What `call` gives, its errors named below `field`."""
    try:
        return call()
    except SpecError as error:
        raise SpecError(f"{field}.{error.field}", error.problem, error.remedy) from None
