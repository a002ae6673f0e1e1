"""Recipes: how an ensemble learns, as one frozen value."""

import math
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, TypeVar, get_args

from pydantic import Field, field_validator, model_validator

from anchorlab.errors import SpecError
from anchorlab.models.edits import Edit
from anchorlab.spec import Spec
from anchorlab.tasks import Task
from anchorlab.training.own_loss import AnyLoss

Unit = Literal["steps", "epochs"]

MOST_SEQUENCES = 2**32
"""The largest accepted number of sequences: no memory holds more, so a larger number is a typo."""


class FixedSample(Spec):
    """A fixed training set of `size` sequences, reshuffled every epoch.

    With `nested`, a smaller sample of a seed is the beginning of a larger one, so that a curve by data size compares
    like with like. It is drawn in blocks (`nested_sample`), so its sequences differ from those without `nested`.
    """

    by_place: ClassVar[str | None] = "size"
    later: ClassVar[frozenset[str]] = frozenset({"nested"})

    kind: Literal["sample"] = "sample"
    size: int = Field(default=1000, ge=1, le=MOST_SEQUENCES)
    nested: bool = False


class Stream(Spec):
    """An endless supply of new sequences: no batch repeats an earlier one."""

    kind: Literal["stream"] = "stream"


Undecayed = Literal["norm", "bias", "embedding"]
"""The groups of weights that may be left out of weight decay; see `undecayed_weights`."""


class _Decaying(Spec):
    """What all optimisers share: the groups of weights that do not decay."""

    later: ClassVar[frozenset[str]] = frozenset({"undecayed"})

    undecayed: tuple[Undecayed, ...] = ()

    @field_validator("undecayed")
    @classmethod
    def _in_one_order(cls, groups: tuple[Undecayed, ...]) -> tuple[Undecayed, ...]:
        return tuple(one for one in get_args(Undecayed) if one in groups)  # so that equal choices are equal recipes


class AdamW(_Decaying):
    """Adam with decoupled weight decay (Loshchilov & Hutter, 2019).

    `undecayed` names groups of weights without decay, as in `undecayed=("norm", "bias", "embedding")`; none by default.
    """

    other_names: ClassVar[Mapping[str, str]] = {
        "lr": "learning_rate",
        "rate": "learning_rate",
        "wd": "weight_decay",
        "eps": "epsilon",
    }
    by_place: ClassVar[str | None] = "learning_rate"

    kind: Literal["adamw"] = "adamw"
    learning_rate: float = Field(default=1e-3, gt=0)
    weight_decay: float = Field(default=0.01, ge=0)
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.999)
    epsilon: float = Field(default=1e-8, gt=0)


class Adam(AdamW):
    """Adam (Kingma & Ba, 2015); weight decay, if any, is added to the gradient. `undecayed` as in `AdamW`."""

    kind: Literal["adam"] = "adam"  # type: ignore[assignment]
    weight_decay: float = Field(default=0.0, ge=0)


class SGD(_Decaying):
    """Stochastic gradient descent with momentum; weight decay is added to the gradient. `undecayed` as in `AdamW`."""

    other_names: ClassVar[Mapping[str, str]] = {"lr": "learning_rate", "rate": "learning_rate", "wd": "weight_decay"}
    by_place: ClassVar[str | None] = "learning_rate"

    kind: Literal["sgd"] = "sgd"
    learning_rate: float = Field(default=0.03, gt=0)
    momentum: float = Field(default=0.0, ge=0, lt=1)
    weight_decay: float = Field(default=0.0, ge=0)


Optimiser = Annotated[AdamW | Adam | SGD, Field(discriminator="kind")]


class Constant(Spec):
    """A constant learning rate."""

    kind: Literal["constant"] = "constant"

    def factor(self, time: int | float) -> float:
        """Return 1."""
        return 1.0


class WarmupCosine(Spec):
    """Linear warm-up from `start` to 1 over `warmup`, then half a cosine down to `end` at `horizon`, then constant.

    `warmup` and `horizon` are in the recipe's unit; `start` and `end` are fractions of the learning rate. The horizon
    does not depend on the duration, so a shorter run follows the same curve. The anchor-function paper (appendix A)
    warms up from a tenth over 400 epochs and returns to a tenth at 4000; its reference code starts a cosine of 4000
    epochs after the warm-up, which is `horizon=4400`.
    """

    kind: Literal["warmup_cosine"] = "warmup_cosine"
    warmup: int = Field(default=0, ge=0)
    horizon: int = Field(ge=1)
    start: float = Field(default=0.0, ge=0, le=1)
    end: float = Field(default=0.0, ge=0, le=1)

    @model_validator(mode="after")
    def _ends_after_warmup(self) -> "WarmupCosine":
        if self.horizon <= self.warmup:
            raise SpecError("horizon", f"{self.horizon} is not after the warm-up of {self.warmup}", "make it longer")
        return self

    def factor(self, time: int | float) -> float:
        """Return the fraction of the learning rate at `time`."""
        if time < self.warmup:
            return self.start + (1 - self.start) * time / self.warmup
        progress = min(1.0, (time - self.warmup) / (self.horizon - self.warmup))
        return self.end + (1 - self.end) * 0.5 * (1 + math.cos(math.pi * progress))


Schedule = Annotated[Constant | WarmupCosine, Field(discriminator="kind")]


Every = Annotated[int, Field(ge=1)] | Literal["auto"] | None

SomeTimes = TypeVar("SomeTimes", bound="Times")


class Times(Spec):
    """Times at which something happens, in the recipe's unit: every `every` units, at each of `at`, and at the end.

    An experiment replaces `every="auto"` by a number that gives about twenty times along its training, or by None if
    `at` names times.
    """

    every: Every = None
    at: tuple[Annotated[int, Field(ge=0)], ...] = ()

    def along(self: SomeTimes, duration: int) -> SomeTimes:
        """Return these times for a training of `duration` units, with a number in place of `auto`."""
        if self.every != "auto":
            return self
        return self.replace(every=None if self.at else max(1, duration // 20))

    def due(self, time: int) -> bool:
        """Return whether `time` is one of these times; the caller adds the end."""
        if self.every == "auto":
            raise ValueError("times depend on a duration: use `along` first")
        return time in self.at or (self.every is not None and time % self.every == 0)


class Evaluation(Times):
    """When to measure the members: on which splits, on how many sequences, and under which weight edits.

    By default about twenty times along the training; `every=None` measures at the end alone. `size` sequences of each
    split are measured, for `train` the first of a fixed sample; `splits` None means all splits. `edits` maps a name to
    weight edits, which are applied to a copy of the weights; it is measured too and does not affect training.
    """

    every: Every = "auto"
    size: int = Field(default=500, ge=1, le=MOST_SEQUENCES)
    splits: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    edits: dict[str, tuple[Edit, ...]] = Field(default_factory=dict)

    @field_validator("edits")
    @classmethod
    def _none_is_taken(cls, edits: dict[str, tuple[Edit, ...]]) -> dict[str, tuple[Edit, ...]]:
        if "none" in edits:
            raise SpecError("none", "this name is reserved for the unedited weights", "choose another name")
        return edits


class Stop(Spec):
    """Stop a member once `metric` on `split` has reached `value` at an evaluation, in every group of sequences.

    The other members continue; a member's result never depends on them.
    """

    metric: str
    value: float
    split: str = "test"
    direction: Literal["above", "below"] = "above"

    def reached(self, value: float) -> bool:
        """Return whether a measured value has reached `self.value`; NaN never has."""
        return value >= self.value if self.direction == "above" else value <= self.value


class Recipe(Spec):
    """How an ensemble learns: data, loss, optimiser, schedule, batch, duration, clipping, precision, evaluation.

    `unit` is the unit of all times (duration, schedule, evaluation, checkpoints): steps or epochs. With epochs, the
    learning rate changes once per epoch, as in the anchor-function paper's reference code. `loss` takes the place of
    the task's own loss in training: a registered one (see `al.training.register_loss`), its kind, or a function. Then
    the metric `loss` is still the task's, and the metric `objective` is what training minimises.
    """

    other_names: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("learning_rate", "lr"), "optimiser=al.AdamW(learning_rate=...)"),
        **dict.fromkeys(("weight_decay", "wd"), "optimiser=al.AdamW(weight_decay=...)"),
        **dict.fromkeys(("optimizer", "optim"), "optimiser=al.AdamW(...)"),
        "momentum": "optimiser=al.SGD(momentum=...)",
        **dict.fromkeys(("scheduler", "warmup"), "schedule=al.WarmupCosine(...)"),
        **dict.fromkeys(("steps", "max_steps"), "duration"),
        **dict.fromkeys(("epochs", "max_epochs"), "duration, with unit='epochs'"),
        "batch_size": "batch",
        "size": "data=al.FixedSample(size=...)",
        "dtype": "precision",
        **dict.fromkeys(("loss_fn", "criterion"), "loss"),
        **dict.fromkeys(("grad_clip", "max_norm"), "clip"),
        **dict.fromkeys(("seed", "seeds"), "al.train(..., seeds=...)"),
    }

    later: ClassVar[frozenset[str]] = frozenset({"loss"})

    data: Annotated[FixedSample | Stream, Field(discriminator="kind")] = FixedSample()
    optimiser: Optimiser = AdamW()
    schedule: Schedule = Constant()
    batch: int = Field(default=50, ge=1, le=MOST_SEQUENCES)
    unit: Unit = "steps"
    duration: int = Field(default=1000, ge=1)
    clip: float | None = Field(default=None, gt=0)
    precision: Literal["float32", "float64", "bfloat16"] = "float32"
    evaluation: Evaluation = Evaluation()
    checkpoints: Times = Times()
    stop: Stop | None = None
    loss: AnyLoss = None

    @model_validator(mode="after")
    def _fits_together(self) -> "Recipe":
        if self.unit == "epochs" and self.data.kind == "stream":
            raise SpecError("unit", "a stream has no epochs", "use steps")
        if isinstance(self.data, FixedSample) and self.batch > self.data.size:
            raise SpecError("batch", f"{self.batch} is more than the {self.data.size} training sequences", "lower it")
        return self

    def with_times(self) -> "Recipe":
        """Return this recipe with the times that its duration decides; see `Times`."""
        evaluation, checkpoints = self.evaluation.along(self.duration), self.checkpoints.along(self.duration)
        if (evaluation, checkpoints) == (self.evaluation, self.checkpoints):
            return self
        return self.replace(evaluation=evaluation, checkpoints=checkpoints)

    def steps_per_unit(self, size: int) -> int:
        """Return the optimiser steps in one unit of time, for a training set of `size` sequences."""
        return 1 if self.unit == "steps" else -(-size // self.batch)


def default_recipe(task: Task, duration: int = 2000) -> Recipe:
    """Return a recipe of `duration` steps that lets small models learn the task.

    Trains on a fixed sample if the task separates its splits, else on a stream.
    """
    return Recipe(
        data=FixedSample(size=1000) if task.separated else Stream(),
        optimiser=AdamW(learning_rate=1e-3),
        schedule=WarmupCosine(warmup=min(100, duration // 10), horizon=duration, end=0.1),
        batch=50 if task.separated else 64,
        duration=duration,
        clip=1.0,
    )
