"""The interface of tasks, which every benchmark function implements, and the proof that splits are separate."""

import json
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from numbers import Integral
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from anchorlab.axes import TaskShape
from anchorlab.drawable import Drawable
from anchorlab.errors import SpecError, one_sequence
from anchorlab.memory import memory
from anchorlab.spec import Spec, check_known
from anchorlab.tasks.batch import Answer, Batch, Example, Token, TraceStep
from anchorlab.tasks.metrics import LossKind, correct, loss_per_position, probability

_CHECKED = 1000  # sequences of each split of a task without a separation
_ROWS_AT_ONCE = 100_000
_READERS = ("oracle", "split_of", "ideal", "render")


@dataclass(frozen=True)
class Proof(Drawable):
    """A proof about a task's splits.

    method: `enumeration` if every latent was listed, `samples` if sequences were drawn and assigned to splits
    holds: whether every property that the task promises for its splits was confirmed
    words, numbers: the findings as sentences, and as plain data
    """

    method: Literal["enumeration", "samples"]
    holds: bool
    words: tuple[str, ...]
    numbers: Mapping[str, Any]


class Task(Spec, Drawable):
    """A benchmark function: a frozen value that draws sequences, answers them and proves that its splits are separate.

    Subclasses set `family`, a tag unique among task classes, which every run records.
    """

    family: str
    name: str = ""

    separated: ClassVar[bool] = True  # whether no sequence can occur in two splits
    nested: ClassVar[bool] = False  # whether a sample is the beginning of every larger one with the same seed
    proof_samples: ClassVar[int] = 1_000_000  # number of sequences of each split that a proof by samples draws
    loss: ClassVar[LossKind] = "cross_entropy"

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        for name in vars(cls).keys() & set(_READERS):
            method = vars(cls)[name]
            setattr(cls, name, (_of_own_inputs if name == "split_of" else _of_batches)(method))

    def __eq__(self, other: object) -> bool:
        # Compare fields only: the tables that a task caches for sampling are not part of its value.
        return type(self) is type(other) and all(
            getattr(self, name) == getattr(other, name) for name in type(self).model_fields
        )

    def __hash__(self) -> int:
        return hash(json.dumps(self.model_dump(mode="json"), sort_keys=True))

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits, training first."""
        return ("train", "test")

    @property
    @abstractmethod
    def shape(self) -> TaskShape:
        """The shapes that a model must accept and return."""

    @abstractmethod
    def sample(self, split: str, n: int, seed: int) -> Batch:
        """Draw `n` sequences of a split; the same seed gives the same bytes.

        Errors: `SpecError` for an unknown split, for an `n` that is negative, not a whole number or too large for the
        memory, and for a seed that is not a whole number.
        """

    @abstractmethod
    def oracle(self, inputs: Shaped[Tensor, "batch position *feature"]) -> Answer:
        """Return the right answers to inputs `[batch position ...]`, derived from the inputs alone, with a trace.

        Errors: `SpecError` for one sequence without a batch axis, and for inputs of another shape than the task's, as
        in every method that reads inputs except `split_of`.
        """

    def for_training(self, batch: Batch) -> Batch:
        """Return a drawn batch as the training loss scores it; by default unchanged.

        In training, a task may score more than its answers. Evaluation scores batches as drawn.
        """
        return batch

    def check_draw(self, split: str, n: int | float, seed: object = 0) -> None:
        """Raise `SpecError` for an unknown split, an `n` that cannot be drawn, or a seed that is not a whole number."""
        check_known("split", split, self.splits, "split")
        if not isinstance(n, Integral) or n < 0:
            raise SpecError("n", f"cannot draw {n!r} sequences", "ask for a whole number, 0 or more")
        if not isinstance(seed, Integral):
            raise SpecError("seed", f"{seed!r:.60} is not a seed", "give a whole number")
        if n > _ROWS_AT_ONCE and n * _bytes(self.sample(split, 1, 0)) > memory():
            problem = f"{n:,} sequences take more than the {memory() / 1e9:.0f} GB of this machine's memory"
            raise SpecError("n", problem, "draw fewer at a time")

    def roles(self, batch: Batch) -> dict[str, Int[Tensor, "batch instance"]]:
        """Return the positions of each role in each sequence.

        The roles are `asked`, the scored positions, and every step of the oracle's trace.

        -1 marks an absent instance; every batch has the same role names. Instances with the same index belong together,
        such as a query and the key that answers it. If a role has a single instance, it belongs to all instances of
        other roles. Circuits (`anchorlab.lens.find_circuit`) are described by these names.
        """
        steps = {step.name: step.position.unsqueeze(1) for step in self.oracle(batch.inputs).trace}
        return {"asked": batch.asked, **steps}

    def split_of(self, inputs: Shaped[Tensor, "batch position *feature"]) -> Int[Tensor, "batch"]:
        """Return the index in `splits` of each sequence's split; -1 if the sequence belongs to no split.

        By default, if splits are not `separated`, a sequence belongs to the first split if the oracle knows an answer.
        A task with separated splits must override this method. An override gets only inputs of the task's shape; all
        others, and sequences with a token outside the vocabulary, belong to no split.
        """
        if self.separated:
            problem = f"is missing, though the splits of {type(self).__name__} are separated"
            raise SpecError("split_of", problem, "define it, or set separated = False on the class")
        return _of_own_inputs(lambda task, own: task.oracle(own).known.any(dim=1).long() - 1)(self, inputs)

    def ideal(self, inputs: Shaped[Tensor, "batch position *feature"]) -> Float[Tensor, "batch scored output"]:
        """Return the exact probabilities at each scored position, given the inputs up to it.

        The probabilities follow from the distribution of training sequences; no model can predict better.

        Errors: `SpecError` for a family that does not compute them.
        """
        raise SpecError("task", f"the {self.family!r} family has no ideal predictor", "use its oracle")

    def proof(self) -> Proof:
        """Return a proof that the splits are separate; by default `prove_by_samples`.

        If splits are not `separated`, a thousand sequences of each are drawn to check that `split_of` accepts them.
        """
        return prove_by_samples(self, self.proof_samples if self.separated else _CHECKED)

    def losses(
        self, outputs: Float[Tensor, "batch scored output"], targets: Shaped[Tensor, "batch scored *output"]
    ) -> Float[Tensor, "batch scored"]:
        """Return the loss at each scored position, which training minimises; by default the loss named by `loss`.

        As in `metrics`, implementations use only plain torch operations.
        """
        return loss_per_position(self.loss, outputs, targets)

    def metrics(
        self, outputs: Float[Tensor, "batch scored output"], batch: Batch
    ) -> dict[str, Float[Tensor, "batch scored"]]:
        """Return each metric at each scored position; callers average them.

        By default `accuracy` and `right`, the probability of the right answer; for vectors `error`, the mean squared
        error. Implementations use only plain torch operations, so that `torch.func.vmap` can map them over members.
        """
        if self.loss == "mean_squared_error":
            return {"error": (outputs - batch.answers).square().mean(dim=-1)}
        return {"accuracy": correct(outputs, batch.answers), "right": probability(outputs, batch.answers)}

    def text_of(self, token: int) -> str:
        """Return the text of a token: its number, unless the family names its tokens."""
        return str(token)

    def render(self, inputs: Shaped[Tensor, "batch position *feature"]) -> Sequence[Example]:
        """Return inputs `[batch position ...]` as readable examples, with the oracle's trace in words.

        By default each token has the role `token`, each step of the oracle's trace gets one line, and the answer shown
        is the one at the last scored position.
        """
        found, sides = self.oracle(inputs), self.split_of(inputs).tolist()
        return [
            Example(
                tuple(Token(_text(value, self.text_of), "token") for value in sequence),
                tuple(_in_words(step, row, self.text_of) for step in found.trace),
                _text(found.answers[row, -1], self.text_of) if found.known[row, -1] else "unknown",
                self.splits[sides[row]] if sides[row] >= 0 else "nowhere",
            )
            for row, sequence in enumerate(inputs.cpu())
        ]


def _of_batches(method: Callable[[Task, Tensor], Any]) -> Callable[[Task, Tensor], Any]:
    """Return a method of a task that reads batches on the CPU and refuses inputs of another shape."""

    @wraps(method)
    def checked(self: Task, inputs: Tensor) -> Any:
        wanted = _wanted(self.shape, inputs)
        if inputs.shape[1:] != wanted:
            remedy = f"give [{', '.join(map(str, ('batch', *wanted)))}]"
            raise SpecError("inputs", f"have shape {tuple(inputs.shape)}", remedy)
        return method(self, inputs.cpu())

    return checked


def _of_own_inputs(split_of: Callable[[Task, Tensor], Tensor]) -> Callable[[Task, Tensor], Tensor]:
    """Return a task's `split_of` on the CPU, with -1 for inputs of another shape and sequences with other tokens."""

    @wraps(split_of)
    def checked(self: Task, inputs: Tensor) -> Tensor:
        shape = self.shape
        inputs = inputs.cpu()
        if inputs.shape[1:] != _wanted(shape, inputs):
            return torch.full((len(inputs),), -1)
        if shape.inputs == "vectors":
            return split_of(self, inputs)
        own = ((inputs >= 0) & (inputs < shape.input_size)).all(dim=1)
        return torch.where(own, split_of(self, inputs.where(own[:, None], 0)), -1)

    return checked


def _wanted(shape: TaskShape, inputs: Tensor) -> tuple[int, ...]:
    """Return the shape of one of a task's sequences. Errors: `SpecError` for one sequence in place of a batch."""
    wanted = (shape.length,) if shape.inputs == "tokens" else (shape.length, shape.input_size)
    if inputs.ndim == len(wanted):
        raise one_sequence("inputs")
    return wanted


def _bytes(batch: Batch) -> int:
    """Return the size of a batch in bytes; a tensor that is kept under two names counts once."""
    kept = (batch.inputs, batch.targets, batch.answers, *batch.latents.values(), *batch.rivals.values())
    return sum({one.data_ptr(): one.nbytes for one in kept}.values())


def _text(value: Tensor, text_of: Callable[[int], str]) -> str:
    """Return a token's text, or a vector's numbers with three digits."""
    if not value.is_floating_point():
        return text_of(int(value))
    return " ".join(f"{number:.3g}" for number in value.reshape(-1).tolist())


def _in_words(step: TraceStep, row: int, text_of: Callable[[int], str]) -> str:
    position = int(step.position[row])
    if position < 0:
        return f"{step.name}: none"
    return f"{step.name}: {_text(step.value[row], text_of)} at position {position}"


def prove_by_samples(task: Task, samples: int) -> Proof:
    """Return a proof by drawing: `split_of` must agree on `samples` sequences of every split."""
    crossed = crossings(task, samples)
    total = sum(crossed.values())
    words: tuple[str, ...]
    if task.separated:
        words = (f"{samples:,} sequences of each split were drawn; {total:,} of them belong to another split or none.",)
    else:
        words = (
            "Splits differ in how sequences are drawn; the same sequence may come up in several.",
            f"{samples:,} sequences of each split were drawn; {total:,} of them could not have come from it.",
        )
    return Proof("samples", total == 0, words, {"samples": samples, "crossed": crossed, "separated": task.separated})


def crossings(task: Task, samples: int) -> dict[str, int]:
    """Count, for each split, the drawn sequences that `split_of` places in another split or in none."""
    crossed = {}
    for index, split in enumerate(task.splits):
        found = 0
        for start in range(0, samples, _ROWS_AT_ONCE):
            inputs = task.sample(split, min(_ROWS_AT_ONCE, samples - start), seed=start).inputs
            sides = task.split_of(inputs)
            found += int(((sides != index) if task.separated else (sides < 0)).sum())
        crossed[split] = found
    return crossed
