"""Attention views: what the viewer of a page shows of models, and what it needs to run them itself."""

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic.dataclasses import dataclass

from anchorlab.errors import SpecError
from anchorlab.spec import JSON_CONFIG

if TYPE_CHECKING:
    from anchorlab.tasks.task import Example

@dataclass(frozen=True, config=JSON_CONFIG)
class Architecture:
    """A token transformer as the page runs it: sizes, and the switches of `DecoderSpec`, one for each block.

    `hidden` is the most neurons of a feed-forward layer, 0 without any. Merged key and query maps, and a feed-forward
    layer of one matrix, are told by the names of the weights.
    """

    layers: int
    heads: int
    head_width: int
    width: int
    hidden: int
    residual: tuple[bool, ...]
    output_linear: tuple[bool, ...]
    layer_norm: tuple[bool, ...]
    feed_forward: tuple[bool, ...]
    mask: tuple[bool, ...]
    projection: bool
    shift_values: int
    length: int
    inputs: int
    outputs: int


@dataclass(frozen=True, config=JSON_CONFIG)
class Weight:
    """One weight of a member: its name in the module, and its shape."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True, config=JSON_CONFIG)
class LiveModel:
    """What a page needs to run the models of a view itself; made by `anchorlab.viewer.live`.

    `weights` are the weights of a member in the order in which they lie in its data; `data` `[member][step]` holds them
    as little-endian 32-bit floats, None where a checkpoint is not carried. `texts` says how each token is written,
    `oracle` is the JSON of the task's oracle (`anchorlab.viewer.oracle`), empty where the page has none.
    """

    architecture: Architecture
    weights: tuple[Weight, ...]
    data: tuple[tuple[bytes | None, ...], ...]
    texts: tuple[str, ...]
    oracle: str = ""

    def __post_init__(self) -> None:
        size = 4 * sum(prod(weight.shape) for weight in self.weights)
        for member in self.data:
            for one in member:
                if one is not None and len(one) != size:
                    raise SpecError("live.data", f"holds {len(one)} bytes for {size}", "make it by live_model")


@dataclass(frozen=True, config=JSON_CONFIG)
class ViewExample:
    """One sequence of a view: the text and the role of each token, the right answer, the oracle's trace in words."""

    texts: tuple[str, ...]
    roles: tuple[str, ...]
    answer: str
    split: str = ""
    trace: tuple[str, ...] = ()


@dataclass(frozen=True, config=JSON_CONFIG)
class ViewPath:
    """An attention path of a circuit: its head, in words (`query x0 → x1 of pair 1`), and where it runs.

    `places` has the positions `(query, key)` for each example, none where the example lacks one of them.
    """

    layer: int
    head: int
    text: str
    places: tuple[tuple[tuple[int, int], ...], ...]


@dataclass(frozen=True, config=JSON_CONFIG)
class AttentionView:
    """Attention of every head on a few sequences along training: what the viewer of a page shows.

    Made by `AttentionView.of`. `weights` holds the patterns in thousandths, as little-endian 16-bit integers in the
    order `[member step example layer head query key]`; a sequence shorter than the longest fills the first of both.
    `predicted` is `[member][step][example]`, empty where nothing was predicted. `labels` says what a detector takes a
    head for, `[member][step][layer*heads + head]` with "" for nothing; `live` lets the page run the models itself;
    where it does not, `recorded_only` may say why. `circuits` has the paths of each member's circuit, or is empty.
    """

    title: str
    members: tuple[str, ...]
    steps: tuple[int, ...]
    examples: tuple[ViewExample, ...]
    layers: int
    heads: int
    length: int
    weights: bytes
    predicted: tuple[tuple[tuple[str, ...], ...], ...] = ()
    labels: tuple[tuple[tuple[str, ...], ...], ...] = ()
    live: LiveModel | None = None
    recorded_only: str = ""
    circuits: tuple[tuple[ViewPath, ...], ...] = ()

    def __post_init__(self) -> None:
        sizes = (
            len(self.members),
            len(self.steps),
            len(self.examples),
            self.layers,
            self.heads,
            self.length,
            self.length,
        )
        if len(self.weights) != 2 * prod(sizes) or 0 in sizes:
            raise SpecError(
                "view.weights", f"holds {len(self.weights)} bytes for {sizes}", "make it by AttentionView.of"
            )
        heads = [[self.layers * self.heads] * len(self.steps)] * len(self.members)
        if self.labels and [[len(one) for one in member] for member in self.labels] != heads:
            raise SpecError("view.labels", "do not fit the steps and heads", "give [member][step][layer*heads + head]")
        if self.live is not None:
            self._check_live(self.live)
        if self.circuits and len(self.circuits) != len(self.members):
            problem = f"are {len(self.circuits)} for {len(self.members)} members"
            raise SpecError("view.circuits", problem, "give one for each, or none")
        for member, paths in enumerate(self.circuits):
            for index, path in enumerate(paths):
                self._check_path(f"view.circuits.{member}.{index}", path)

    def _check_path(self, at: str, path: ViewPath) -> None:
        if not (0 <= path.layer < self.layers and 0 <= path.head < self.heads):
            problem = f"is of head {path.layer}.{path.head}, outside {self.layers} layers of {self.heads} heads"
            raise SpecError(at, problem, "count both from 0")
        if len(path.places) != len(self.examples):
            raise SpecError(f"{at}.places", f"are of {len(path.places)} examples", f"give {len(self.examples)}")
        for example, places in zip(self.examples, path.places, strict=True):
            for query, key in places:
                if not (0 <= query < len(example.texts) and 0 <= key < len(example.texts)):
                    problem = f"hold {(query, key)}, outside {len(example.texts)} tokens"
                    raise SpecError(f"{at}.places", problem, "give (query, key)")

    def _check_live(self, live: LiveModel) -> None:
        own = (self.layers, self.heads, self.length)
        if (live.architecture.layers, live.architecture.heads, live.architecture.length) != own:
            raise SpecError("view.live", f"is of another shape than {own}", "make it of the models that are shown")
        if [len(member) for member in live.data] != [len(self.steps)] * len(self.members):
            raise SpecError("view.live", "does not fit the members and steps", "give data or None for each of them")

    @classmethod
    def of(
        cls,
        title: str,
        examples: "Sequence[Example]",
        steps: Sequence[int],
        patterns: Any,
        members: Sequence[str] = ("member 0",),
        predicted: Sequence[Any] = (),
        labels: Sequence[Any] = (),
        live: LiveModel | None = None,
        circuits: "Sequence[Sequence[ViewPath]]" = (),
    ) -> "AttentionView":
        """A view of patterns `[member step example layer head query key]`, or without `member` where there is one.

        `patterns` is anything that numpy takes, `predicted` texts `[member][step][example]`, or `[step][example]`.

        Errors: `SpecError` where the shape does not fit the other arguments or a weight lies outside 0..1.
        """
        array = np.asarray(patterns, dtype=np.float32)
        if array.ndim == 6:
            array = array[None]
        if predicted and len(members) == 1 and isinstance(predicted[0][0], str):
            predicted = [predicted]
        length = max((len(example.tokens) for example in examples), default=0)
        wanted = (len(members), len(steps), len(examples), *array.shape[3:5], length, length)
        if array.shape != wanted or 0 in wanted:
            raise SpecError(
                "view.patterns",
                f"has shape {array.shape} for {len(members)} members, {len(steps)} steps, {len(examples)} examples"
                f" of {length} tokens",
                "give [member step example layer head query key]",
            )
        if not (array.min() >= -1e-4 and array.max() <= 1 + 1e-4):
            raise SpecError("view.patterns", "has weights outside 0..1", "give the pattern after the softmax")
        if predicted and any([len(row) for row in member] != [len(examples)] * len(steps) for member in predicted):
            raise SpecError("view.predicted", "does not fit the steps and examples", "give [member][step][example]")
        return cls(
            title=title,
            members=tuple(members),
            steps=tuple(steps),
            examples=tuple(
                ViewExample(
                    texts=tuple(token.text for token in example.tokens),
                    roles=tuple(token.role for token in example.tokens),
                    answer=example.answer,
                    split=example.split,
                    trace=example.trace,
                )
                for example in examples
            ),
            layers=array.shape[3],
            heads=array.shape[4],
            length=length,
            weights=(array.clip(0, 1) * 1000).round().astype("<u2").tobytes(),
            predicted=tuple(tuple(tuple(row) for row in member) for member in predicted),
            labels=tuple(tuple(tuple(row) for row in member) for member in labels),
            live=live,
            circuits=tuple(tuple(paths) for paths in circuits),
        )
