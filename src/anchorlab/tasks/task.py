"""The task contract: what every benchmark function, of any family, offers to the floors above."""

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from anchorlab.axes import TaskShape
from anchorlab.errors import SpecError
from anchorlab.spec import Spec, unknown_name
from anchorlab.tasks.proof import Proof, prove_by_samples

LossKind = Literal["cross_entropy", "mean_squared_error"]


@dataclass(frozen=True)
class Batch:
    """Sequences with what is asked about them.

    Shapes
        inputs: tokens `[batch position]` (int64) or vectors `[batch position feature]` (float32)
        targets: what is trained on: ids `[batch scored]`, or distributions or vectors `[batch scored output]`
        answers: the right answers, in the shape of the targets; they differ from the targets where labels are noisy
        positions: where a prediction is asked for, `[scored]` when the same for all sequences, else `[batch scored]`
        weights: `[batch scored]`, 1 where a score counts and 0 where it only fills a row; None: all count
        group: `[batch]`, index into `groups`
        latents: what the sampler drew, by name, each `[batch ...]`; never read by an oracle
        rivals: what other rules would answer, by name, each `[batch scored]`, -1 where they say nothing
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


@dataclass(frozen=True)
class TraceStep:
    """One step of an oracle: what it found, at which position and with which value; -1 where there is nothing."""

    name: str
    position: Int[Tensor, "batch"]
    value: Shaped[Tensor, "batch ..."]


@dataclass(frozen=True)
class Answer:
    """What an oracle says: the right answers, where they are determined by the inputs alone, and how it got there.

    Shapes
        answers: as `Batch.answers`
        known: `[batch scored]`, False where the inputs do not determine the answer
    """

    answers: Tensor
    known: Tensor
    trace: tuple[TraceStep, ...] = ()


@dataclass(frozen=True)
class Token:
    """One position of a sequence as people see it: its text and the part it plays (`anchor`, `key`, `noise`, ...)."""

    text: str
    role: str


@dataclass(frozen=True)
class Example:
    """One sequence rendered for people: its tokens, the oracle's trace in words, the answer."""

    tokens: tuple[Token, ...]
    trace: tuple[str, ...]
    answer: str
    split: str


class Task(Spec):
    """A benchmark function: a frozen value that draws sequences, knows the right answers and proves its separation.

    Subclasses set `family`, a tag unique among task classes that is written into every run.
    """

    family: str
    name: str = ""

    separated: ClassVar[bool] = True  # no sequence can be drawn in two splits
    loss: ClassVar[LossKind] = "cross_entropy"

    def __eq__(self, other: object) -> bool:
        # Fields alone: tables that a task keeps for sampling are no part of its value.
        return type(self) is type(other) and all(
            getattr(self, name) == getattr(other, name) for name in type(self).model_fields
        )

    def __hash__(self) -> int:
        return hash(json.dumps(self.model_dump(mode="json"), sort_keys=True))

    def _repr_html_(self) -> str:
        """In a notebook: two examples of each split, noise in grey, the oracle's trace under a sequence."""
        rows = [
            _html_row(split, one) for split in self.splits for one in self.render(self.sample(split, 2, seed=0).inputs)
        ]
        return f"<p><b>{escape(self.name or self.family)}</b></p><table>{''.join(rows)}</table>"

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits, training first."""
        return ("train", "test")

    @property
    @abstractmethod
    def shape(self) -> TaskShape:
        """What a model must accept and return."""

    @abstractmethod
    def sample(self, split: str, n: int, seed: int) -> Batch:
        """`n` sequences of a split, made in bulk; the same seed gives the same bytes.

        Errors: `SpecError` for an unknown split.
        """

    @abstractmethod
    def oracle(self, inputs: Tensor) -> Answer:
        """The right answers from the inputs alone, with a trace."""

    def check_draw(self, split: str, n: int) -> None:
        """Raises `SpecError` for a split that the task does not have or a negative number of sequences."""
        if split not in self.splits:
            raise unknown_name("split", split, self.splits, "split")
        if n < 0:
            raise SpecError("n", f"cannot draw {n} sequences", "ask for 0 or more")

    def roles(self, batch: Batch) -> dict[str, Int[Tensor, "batch instance"]]:
        """Where the parts of each sequence stand, by what they are: `asked`, and every step of the oracle's trace.

        Each is `[batch instance]`, -1 where there is none; the names are the same for every batch. Instances with one
        number belong together, such as a query and the key that answers it; a role with a single instance belongs to
        all. Circuits (`anchorlab.lens.find_circuit`) are told in these names.
        """
        asked = batch.positions.expand(len(batch), -1)
        found = {"asked": asked if batch.weights is None else asked.where(batch.weights > 0, -1)}
        return found | {step.name: step.position.unsqueeze(1) for step in self.oracle(batch.inputs).trace}

    @abstractmethod
    def split_of(self, inputs: Tensor) -> Int[Tensor, "batch"]:
        """The side on which each sequence stands: an index into `splits`, -1 for one that belongs nowhere."""

    def ideal(self, inputs: Tensor) -> Float[Tensor, "batch scored output"]:
        """What an ideal learner of the training law predicts at the scored positions: the exact probabilities.

        They see what stands up to each position and know the law, and are the ceiling of every curve.
        Errors: `SpecError` for a task whose family does not work them out.
        """
        raise SpecError("task", f"the {self.family!r} family works out no ideal predictor", "use its oracle")

    def proof(self) -> Proof:
        """What can be shown about the splits; here by trying the predicate on samples."""
        return prove_by_samples(self)

    @abstractmethod
    def metrics(self, outputs: Float[Tensor, "batch scored output"], batch: Batch) -> dict[str, Tensor]:
        """What is measured at each scored position, each `[batch scored]`, the higher floors average them.

        Only plain torch operations, so that it can be mapped over members.
        """

    def text_of(self, token: int) -> str:
        """A token as people read it: its number, unless the family has names for tokens."""
        return str(token)

    @abstractmethod
    def render(self, inputs: Tensor) -> Sequence[Example]:
        """The sequences as people read them, with the oracle's trace."""


class Scores:
    """The metrics that families share; all take predictions `[batch scored output]` and give `[batch scored]`."""

    @staticmethod
    def correct(outputs: Float[Tensor, "batch scored output"], answers: Int[Tensor, "batch scored"]) -> Tensor:
        """1 where the most probable token is the answer."""
        return (outputs.argmax(dim=-1) == answers).to(outputs.dtype)

    @staticmethod
    def probability(outputs: Float[Tensor, "batch scored output"], tokens: Int[Tensor, "batch scored"]) -> Tensor:
        """The probability of a token."""
        return torch.softmax(outputs, dim=-1).gather(-1, tokens.unsqueeze(-1)).squeeze(-1)


def loss_per_position(kind: LossKind, outputs: Tensor, targets: Tensor) -> Tensor:
    """The loss at each scored position, `[batch scored]`.

    `cross_entropy` takes ids `[batch scored]` or distributions `[batch scored output]`; `mean_squared_error` averages
    over the output's coordinates.
    """
    if kind == "mean_squared_error":
        return (outputs - targets).square().mean(dim=-1)
    log_probabilities = torch.log_softmax(outputs, dim=-1)
    if targets.is_floating_point():
        return -(targets * log_probabilities).sum(dim=-1)
    return -log_probabilities.gather(-1, targets.unsqueeze(-1)).squeeze(-1)


def _html_row(split: str, example: Example) -> str:
    def shown(token: Token) -> str:
        text = escape(token.text)
        return f'<span style="color:grey">{text}</span>' if token.role == "noise" else f"<b>{text}</b>"

    tokens, trace = " ".join(map(shown, example.tokens)), escape("; ".join(example.trace))
    return f"<tr><td>{split}</td><td>{tokens}<br>{trace}</td><td><b>{escape(example.answer)}</b></td></tr>"


def example_data(example: Example) -> dict[str, Any]:
    """An example as plain data, for JSON."""
    return {
        "tokens": [{"text": token.text, "role": token.role} for token in example.tokens],
        "trace": list(example.trace),
        "answer": example.answer,
        "split": example.split,
    }
