"""Anchor functions: the product of vocabulary, rules with their operations, placement, separation and scoring."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.random import Generator
from pydantic import Field, field_validator, model_validator
from torch import Tensor

from anchorlab.axes import TaskShape
from anchorlab.errors import SpecError, below
from anchorlab.rng import generator
from anchorlab.tasks.anchor.drawing import Drawing, draw_sequences, drawings
from anchorlab.tasks.anchor.expression import Expression
from anchorlab.tasks.anchor.labels import CHANGED, Labels
from anchorlab.tasks.anchor.noise import MarkovNoise
from anchorlab.tasks.anchor.operation import Operation
from anchorlab.tasks.anchor.placement import Layout, Placement
from anchorlab.tasks.anchor.proof import prove, prove_coverage
from anchorlab.tasks.anchor.reader import Reader
from anchorlab.tasks.anchor.rendering import render
from anchorlab.tasks.anchor.rule import Rule, check_names
from anchorlab.tasks.anchor.scoring import Scoring
from anchorlab.tasks.anchor.separation import AnySeparation, ModularResidue
from anchorlab.tasks.anchor.vocabulary import Vocabulary
from anchorlab.tasks.batch import Answer, Batch, Example, TraceStep
from anchorlab.tasks.metrics import correct
from anchorlab.tasks.registry import task_family
from anchorlab.tasks.task import Proof, Task

_ROWS_AT_ONCE = 16_384  # few enough to stay in the processor's cache
_MOST_GROUPS = 64
_MOST_CHOICES = 2**26  # maximum number of combinations of frame and key


@task_family("anchor")
class AnchorFunction(Task):
    """A function of the keys that its anchors point to; every other token is noise.

    operations: the operation of each anchor on a key, as in `{3: "+5"}`
    rules: the pattern of a sequence and its answer, by name, as in `{"mean": "3 x y -> (x + y) // 2"}`; a single one as
        text, which is named `rule`
    exceptions: operations of particular pairs of anchors, which `pair(A, B, x)` applies in place of the anchors' own
    rivals: other rules over the same patterns that might explain a model's answers; agreement with each is measured
    vocabulary: the token ids, and which of them are items and anchors; by default the anchors of `operations`
    placement: the length of sequences, and the anchors that the slots of a pattern may hold
    separation: the assignment of sequences to training and test
    scoring: the positions at which the answer is scored
    labels: statistical labels; None: the label is the answer
    noise: a Markov chain that noise follows, as in text; None: noise tokens are independent
    shares: the share of each group in the training data, exact in every sample; empty: as drawn
    group_by: the grouping of evaluation: by combinations of anchors, rules, changed labels, or nothing
    name: the task's name in files and figures

    >>> AnchorFunction(operations={3: "+5"}).sample("train", 2, seed=0).inputs.shape
    torch.Size([2, 9])
    >>> mean = AnchorFunction(rules={"mean": "3 x y -> (x + y) // 2"}, operations={3: "x"})

    A sequence is drawn in five uniform steps: the rule; its anchors; their positions, among positions for which the
    split has keys; the keys, among keys that the separation allows there; and the noise, among the items. A sequence
    that fits several rules or has no answer is drawn again.

    Errors: `SpecError` if the parts do not fit together: a split without keys, a test key or answer that training never
    shows, an operation that leaves the vocabulary.
    Source: anchor functions, section 3.1, equation (7).
    """

    later: ClassVar[frozenset[str]] = frozenset({"noise"})

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
    noise: MarkovNoise | None = None
    shares: dict[str, float] = Field(default_factory=dict)
    group_by: Literal["anchors", "rule", "label", "nothing"] = "anchors"

    @field_validator("rules", mode="before")
    @classmethod
    def _rules_have_names(cls, given: Any) -> Any:
        if isinstance(given, list | tuple):
            raise SpecError("", f"are given by name, got {given!r:.80}", "write {'rule': 'A x -> A(x)'}")
        return {"rule": given} if isinstance(given, str) else given

    @model_validator(mode="before")
    @classmethod
    def _operations_name_anchors(cls, data: Any) -> Any:
        operations = data.get("operations") if isinstance(data, Mapping) else None
        if not operations or not isinstance(operations, Mapping):
            return data
        vocabulary = data.get("vocabulary", {})
        named = [str(anchor) for anchor in operations]
        if not isinstance(vocabulary, Mapping) or "anchors" in vocabulary or not all(map(str.isdecimal, named)):
            return data
        return {**data, "vocabulary": {**vocabulary, "anchors": sorted({int(anchor) for anchor in named})}}

    @field_validator("operations", "exceptions", "rules", "rivals", "shares")
    @classmethod
    def _in_one_order(cls, given: dict[Any, Any]) -> dict[Any, Any]:
        return dict(sorted(given.items()))  # equal tasks draw equal sequences; files keep keys sorted

    @model_validator(mode="after")
    def _fits(self) -> "AnchorFunction":
        self._check_operations()
        for name, rule in self.rules.items():
            with below(f"rules.{name}"):
                rule.answer.check_size(self.vocabulary.size)
        for name, text in self.rivals.items():
            with below(f"rivals.{name}"):
                rival = Expression(text)
                rival.check_size(self.vocabulary.size)
            if self.labels is not None and name == CHANGED:
                raise SpecError(f"rivals.{name}", "is the name of the changed label", "choose another name")
            for rule in self.rules.values():
                check_names(rival, rule.pattern, f"rivals.{name}")
        answers = [*(rule.answer for rule in self.rules.values()), *map(Expression, self.rivals.values())]
        if self.pairs and not any(one.functions & {"pair", "trained"} for one in answers):
            raise SpecError("exceptions", "are applied by no answer", "write pair(A, B, x) in a rule")
        with below("placement"):
            layout = self.layout
        with below("separation"):
            self.separation.check(layout)
        with below("scoring"):
            self.scoring.within(self.placement.length)
        if self.noise is not None:
            with below("noise"):
                self.noise.check(self.vocabulary)
        if len(layout.frames) * self.vocabulary.item_count * layout.slots > _MOST_CHOICES:
            raise SpecError("placement", "makes too many frames for this many items", "use fewer anchors or items")
        if self.labels is None and self.group_by == "label":
            raise SpecError("group_by", "labels are not statistical", "give labels, or group by anchors")
        self._check_shares()
        self._coverage  # noqa: B018  cached: pydantic runs this validator twice on parsed data
        return self

    def _check_operations(self) -> None:
        """Raise `SpecError` unless exactly the anchors of the vocabulary have operations."""
        given, anchors = set(self.operations), set(self.vocabulary.anchors)
        if unknown := sorted(given - anchors):
            remedy = f"name it in vocabulary.anchors, or give operations for {sorted(anchors)}"
            raise SpecError(f"operations.{unknown[0]}", "is not an anchor of the vocabulary", remedy)
        if missing := sorted(anchors - given):
            raise SpecError("operations", f"anchor {missing[0]} has none", f"give one for each of {sorted(anchors)}")

    def _check_shares(self) -> None:
        """Raise `SpecError` unless `shares` is empty or gives every group of the training data a share above 0."""
        drawn = set(self.drawings["train"].group.tolist())
        for name, share in self.shares.items():
            if name not in self.groups or self.groups.index(name) not in drawn:
                known = [self.groups[group] for group in sorted(drawn)]
                remedy = f"use {', '.join(known)}"[:200]
                raise SpecError(f"shares.{name}", "is not a group of the training data", remedy)
            if not share > 0:
                raise SpecError(f"shares.{name}", f"{share:g} is not above 0", "leave the group out of separation.seen")
        if self.shares and len(self.shares) < len(drawn):
            raise SpecError("shares", "leave out a group of the training data", "give one for each group")

    @cached_property
    def _coverage(self) -> None:
        """Raise `SpecError` if test has keys or answers that training never shows."""
        prove_coverage(self.reader, self.drawings)

    @property
    def splits(self) -> tuple[str, ...]:
        """`train` and `test`; `test on data` and `test on task` if both keys and combinations are held out."""
        return self.separation.splits

    @cached_property
    def layout(self) -> Layout:
        """Every way to place the patterns in a sequence."""
        return Layout.build([rule.pattern for rule in self.rules.values()], self.placement, self.vocabulary)

    @cached_property
    def pairs(self) -> dict[tuple[int, int], Operation]:
        """The operations of `exceptions`, by pair of anchors."""
        found = {}
        for text, operation in self.exceptions.items():
            parts = [part.strip() for part in text.split(",")]
            if len(parts) != 2 or not all(p.isdigit() and int(p) in self.vocabulary.anchors for p in parts):
                raise SpecError(f"exceptions.{text}", "is not a pair of anchors", 'write two of them, such as "4,3"')
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
        """The names of the groups, to which `shares` and the results of evaluation refer."""
        return ("unchanged", "changed") if self.group_by == "label" else self._frame_groups[1]

    @cached_property
    def drawings(self) -> dict[str, Drawing]:
        """The frames and keys that each split draws from. Errors: `SpecError` for a split without any frame."""
        return drawings(self.layout, self.separation, self._frame_groups[0])

    @cached_property
    def reader(self) -> Reader:
        """The rules, ready to read latents and answers from sequences."""
        frames = self.layout.frames.select(self.drawings["train"].frames).anchors.tolist()
        trained = {tuple(anchor for anchor in anchors if anchor >= 0) for anchors in frames}
        return Reader(
            layout=self.layout,
            separation=self.separation,
            rules=self.rules,
            operations=self.operations,
            exceptions=self.pairs,
            rivals={name: Expression(text) for name, text in self.rivals.items()},
            trained=frozenset((anchors[0], anchors[1]) for anchors in trained if len(anchors) == 2),
        )

    @property
    def shape(self) -> TaskShape:
        """Tokens in, tokens out."""
        return TaskShape("tokens", self.placement.length, self.vocabulary.size, self.vocabulary.size)

    def sample(self, split: str, n: int, seed: int) -> Batch:
        """Draw `n` sequences of a split.

        Latents: the fields of `Latent`: `rule` `[batch]`, `anchors` and `anchor_positions` `[batch anchor]`, `keys` and
        `key_positions` `[batch slot]`.

        Errors: `SpecError` for an unknown split, and for a split whose sequences hardly ever have an answer.
        """
        self.check_draw(split, n, seed)
        drawing = self.drawings[split]
        random = generator(seed, "sequences", split)
        copies = (self.labels.copies or 1) if self.labels else 1
        drawn = -(-n // copies)
        groups = self._shared_out(drawn, random) if self.shares and split == "train" else None
        inputs = torch.empty((drawn, self.placement.length), dtype=torch.int64)
        into, choice, keys = inputs.numpy(), np.empty(drawn, np.int64), np.empty((drawn, self.layout.slots), np.int64)
        answers, rivals = np.empty(drawn, np.int64), {name: np.empty(drawn, np.int64) for name in self.rivals}
        for start in range(0, drawn, _ROWS_AT_ONCE):
            rows = slice(start, min(drawn, start + _ROWS_AT_ONCE))
            choice[rows] = drawing.frame(random, rows.stop - start, None if groups is None else groups[rows])
            found = draw_sequences(self.reader, drawing, choice[rows], random, into[rows], self.noise)
            keys[rows], answers[rows] = found.latent.keys, found.answer
            for name, other in found.rivals.items():
                rivals[name][rows] = other
        latent = self.layout.frames.select(drawing.frames[choice]).with_keys(keys)
        spread, by_label = self._spread(answers), self.group_by == "label"
        one_group = len(self.groups) == 1 or by_label
        group = None if one_group else torch.from_numpy(drawing.group[choice])
        names = ("all",) if one_group else self.groups
        latents = {name: torch.from_numpy(value) for name, value in vars(latent).items()}
        others = {name: self._spread(value) for name, value in rivals.items()}
        batch = Batch(inputs, spread, spread, self.positions, split, None, group, names, latents, others)
        return batch if self.labels is None else self.labels.applied(batch, n, random, self.vocabulary.size, by_label)

    def _shared_out(self, n: int, random: Generator) -> Int[np.ndarray, "row"]:
        """Return a group for each of `n` rows, in random order; their counts follow `shares`, rounded to whole rows."""
        share = np.array(list(self.shares.values())) / sum(self.shares.values()) * n
        count = np.floor(share).astype(np.int64)
        count[np.argsort(count - share, kind="stable")[: n - count.sum()]] += 1
        return random.permutation(np.repeat([self.groups.index(name) for name in self.shares], count))

    @property
    def positions(self) -> Int[Tensor, "scored"]:
        """The scored positions, the same for every sequence."""
        return torch.tensor(self.scoring.within(self.placement.length), dtype=torch.int64)

    def for_training(self, batch: Batch) -> Batch:
        """Return a batch as the training loss scores it: at every position if `scoring.every_token` is set."""
        return self.scoring.for_training(batch, self.vocabulary.size)

    def _spread(self, answer: Int[np.ndarray, "batch"]) -> Int[Tensor, "batch scored"]:
        """Repeat each sequence's answer at every scored position."""
        return torch.from_numpy(answer).unsqueeze(-1).repeat(1, len(self.scoring.positions))

    def oracle(self, inputs: Int[Tensor, "batch position"]) -> Answer:
        """Return the answers, with a trace of the anchors found, the keys read and the value after each operation."""
        found = self.reader.read(inputs.numpy())
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
        answer = self._spread(found.answer)
        known = answer >= 0
        if self.labels is not None and self.labels.targets == "distribution":
            answer = self.labels.distribution(answer.clamp(min=0), self.vocabulary.size)
        return Answer(answer, known, tuple(steps))

    def roles(self, batch: Batch) -> dict[str, Int[Tensor, "batch instance"]]:
        """Return the positions of the roles `asked`, `anchor 1` .. and `key 1` ..; operations have no role."""
        named = super().roles(batch).items()
        return {name: places for name, places in named if name.startswith(("asked", "anchor ", "key "))}

    def split_of(self, inputs: Int[Tensor, "batch position"]) -> Int[Tensor, "batch"]:
        """Return an index into `splits`; -1 for a sequence that fits no rule, has other tokens or mixes splits."""
        return torch.from_numpy(self.reader.side(inputs.numpy()))

    def metrics(
        self, outputs: Float[Tensor, "batch scored output"], batch: Batch
    ) -> dict[str, Float[Tensor, "batch scored"]]:
        """Return `accuracy` (the most probable token is the answer) and `agrees: <rival>` for each rival.

        Statistical labels have further metrics: see `Labels.metrics`.
        """
        own = self.labels.metrics(outputs, batch) if self.labels else {"accuracy": correct(outputs, batch.answers)}
        return own | {f"agrees: {name}": correct(outputs, batch.rivals[name]) for name in self.rivals}

    def proof(self) -> Proof:
        """Return a proof by listing every latent if there are few enough, else by samples."""
        return prove(self, self.reader, self.drawings)

    def render(self, inputs: Int[Tensor, "batch position"]) -> Sequence[Example]:
        """Return the sequences with the role of each token, and the oracle's trace in words."""
        return render(self.reader, inputs)
