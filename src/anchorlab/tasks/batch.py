"""The values that tasks return: batches, an oracle's answers, and readable examples."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from anchorlab.drawable import Drawable


@dataclass(frozen=True, repr=False)
class Batch(Drawable):
    """Sequences with their targets and answers.

    Shapes
        inputs: tokens `[batch position]` (int64) or vectors `[batch position feature]` (float32)
        targets: the training targets: ids `[batch scored]`, or distributions or vectors `[batch scored output]`
        answers: the right answers, in the shape of the targets; they differ from the targets if labels are noisy
        positions: the scored positions, `[scored]` if shared by all sequences, else `[batch scored]`
        weights: `[batch scored]`, 1 where a score counts and 0 where it pads a row; None: all count
        group: `[batch]`, index into `groups`; None if there is only one group
        latents: the values that the sampler drew, by name, each `[batch ...]`; no oracle reads them
        rivals: the answers of other rules, by name, each `[batch scored]`; -1 if a rule gives no answer
    """

    inputs: Tensor
    targets: Tensor
    answers: Tensor
    positions: Tensor
    split: str
    weights: Tensor | None = None
    group: Tensor | None = None
    groups: tuple[str, ...] = ("all",)
    latents: Mapping[str, Tensor] = field(default_factory=dict)
    rivals: Mapping[str, Tensor] = field(default_factory=dict)

    def __len__(self) -> int:
        return int(self.inputs.shape[0])

    @property
    def asked(self) -> Int[Tensor, "batch scored"]:
        """The scored positions of each sequence; -1 where a score pads its row."""
        positions = self.positions.expand(len(self), -1)
        return positions if self.weights is None else positions.where(self.weights > 0, -1)

    def __repr__(self) -> str:
        arrays = ("inputs", "targets", "answers", "positions", "weights", "group")
        shapes = [f"{name} {list(array.shape)}" for name in arrays if (array := getattr(self, name)) is not None]
        held = [f"{name} {', '.join(kept)}" for name in ("latents", "rivals") if (kept := getattr(self, name))]
        return "\n  ".join([f"Batch of {len(self)} sequences of {self.split!r}", ", ".join(shapes), *held])


def drawn_in_parts(
    n: int, most: int, draw: Callable[[int], Mapping[str, Shaped[np.ndarray, "row ..."]]]
) -> dict[str, Shaped[Tensor, "row ..."]]:
    """Return `n` rows of the arrays that `draw(rows)` draws, at most `most` rows at a time, in torch's own memory."""
    parts = [draw(min(most, n - start)) for start in range(0, n, most)] or [draw(0)]
    return {name: torch.cat([torch.from_numpy(one[name]) for one in parts]) for name in parts[0]}


@dataclass(frozen=True)
class TraceStep:
    """One step of an oracle: the position that it read and the value that it found; -1 if it found nothing."""

    name: str
    position: Int[Tensor, "batch"]
    value: Shaped[Tensor, "batch ..."]


@dataclass(frozen=True)
class Answer:
    """The oracle's answers, computed from the inputs alone, with its trace.

    Shapes
        answers: as `Batch.answers`
        known: `[batch scored]`, False if the inputs do not determine the answer
    """

    answers: Shaped[Tensor, "batch scored *output"]
    known: Bool[Tensor, "batch scored"]
    trace: tuple[TraceStep, ...] = ()


@dataclass(frozen=True)
class Token:
    """One position of a sequence for display: its text and its role (`anchor`, `key`, `noise`, ...)."""

    text: str
    role: str


@dataclass(frozen=True)
class Example:
    """One sequence for display: its tokens, the oracle's trace in words, its answer and its split.

    `separator` joins the tokens in the text; it is empty if tokens include their own spaces.
    """

    tokens: tuple[Token, ...]
    trace: tuple[str, ...]
    answer: str
    split: str
    separator: str = " "

    def __str__(self) -> str:
        """Return the sequence, its answer, its split and the trace."""
        because = f": {'; '.join(self.trace)}" if self.trace else ""
        return f"{self.text} -> {self.answer} ({self.split}){because}"

    @property
    def text(self) -> str:
        """The sequence as text."""
        return self.separator.join(token.text for token in self.tokens)


def example_data(example: Example) -> dict[str, Any]:
    """Return an example as plain data, ready for JSON."""
    return {
        "tokens": [{"text": token.text, "role": token.role} for token in example.tokens],
        "trace": list(example.trace),
        "answer": example.answer,
        "split": example.split,
    }
