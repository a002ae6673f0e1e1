"""Recipes: how an ensemble learns, as one frozen value."""

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from anchorlab.errors import SpecError
from anchorlab.models.edits import Edit
from anchorlab.models.initialisation import GAMMA, WeightGroup
from anchorlab.spec import Spec
from anchorlab.training.schedule import Constant, Schedule

Unit = Literal["steps", "epochs"]

MOST_SEQUENCES = 2**32
"""More than any memory holds: a number above is a slip of the pen."""


class FixedSample(Spec):
    """A fixed training set of `size` sequences, seen in a new order every epoch."""

    kind: Literal["sample"] = "sample"
    size: int = Field(default=1000, ge=1, le=MOST_SEQUENCES)


class Stream(Spec):
    """Fresh sequences in every batch, none ever seen twice."""

    kind: Literal["stream"] = "stream"


class AdamW(Spec):
    """Adam with decoupled weight decay (Loshchilov & Hutter, 2019)."""

    kind: Literal["adamw"] = "adamw"
    learning_rate: float = Field(default=1e-3, gt=0)
    weight_decay: float = Field(default=0.01, ge=0)
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.999)
    epsilon: float = Field(default=1e-8, gt=0)


class Adam(AdamW):
    """Adam (Kingma & Ba, 2015); its weight decay, if any, is added to the gradient."""

    kind: Literal["adam"] = "adam"  # type: ignore[assignment]
    weight_decay: float = Field(default=0.0, ge=0)


class SGD(Spec):
    """Stochastic gradient descent with momentum; weight decay is added to the gradient."""

    kind: Literal["sgd"] = "sgd"
    learning_rate: float = Field(default=0.03, gt=0)
    momentum: float = Field(default=0.0, ge=0, lt=1)
    weight_decay: float = Field(default=0.0, ge=0)


Optimiser = Annotated[AdamW | Adam | SGD, Field(discriminator="kind")]


class Times(Spec):
    """Moments of a run, in the recipe's unit: every so often, and at named times; the end is always one of them."""

    every: int | None = Field(default=None, ge=1)
    at: tuple[Annotated[int, Field(ge=0)], ...] = ()

    def due(self, time: int) -> bool:
        """Whether something happens at this time, the end aside."""
        return time in self.at or (self.every is not None and time % self.every == 0)


class Evaluation(Times):
    """When to measure, on how many sequences, and under which weight edits beside the plain weights.

    `edits` names lists of weight edits: each is applied to a copy of the weights, and training goes on untouched.
    """

    size: int = Field(default=500, ge=1, le=MOST_SEQUENCES)
    splits: tuple[str, ...] | None = None
    edits: dict[str, tuple[Edit, ...]] = Field(default_factory=dict)

    @field_validator("edits")
    @classmethod
    def _plain_is_taken(cls, edits: dict[str, tuple[Edit, ...]]) -> dict[str, tuple[Edit, ...]]:
        if "none" in edits:
            raise SpecError("none", "this name stands for the plain weights", "call the edit something else")
        return edits


class Stop(Spec):
    """A member stops learning once `metric` on `split` has reached `value` at an evaluation.

    Its neighbours go on; what a member learns never depends on them.
    """

    metric: str
    value: float
    split: str = "test"
    direction: Literal["above", "below"] = "above"

    def reached(self, value: float) -> bool:
        """Whether a measured value is good enough."""
        return value >= self.value if self.direction == "above" else value <= self.value


class Recipe(Spec):
    """How an ensemble learns: data, optimiser, schedule, batch, duration, clipping, precision, evaluation.

    Every time in it - duration, schedule, evaluation, checkpoints - is counted in `unit`. With epochs, the learning
    rate changes once an epoch, as in the anchor-function paper's reference code.
    """

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

    @model_validator(mode="after")
    def _fits_together(self) -> "Recipe":
        if self.unit == "epochs" and self.data.kind == "stream":
            raise SpecError("unit", "a stream has no epochs", "use steps")
        if isinstance(self.data, FixedSample) and self.batch > self.data.size:
            raise SpecError("batch", f"{self.batch} is more than the {self.data.size} training sequences", "lower it")
        return self

    def steps_per_unit(self, size: int) -> int:
        """Optimiser steps in one unit of time for a training set of `size`."""
        return 1 if self.unit == "steps" else -(-size // self.batch)


PerMemberRate = tuple[Annotated[float, Field(ge=0)], ...]


class Gamma(Spec):
    """The initialisation rate γ of each member, for models with `initialisation = "normal"`.

    A weight matrix begins as N(0, inputs^-2γ). `all` holds for every type of block; a type named beside it goes its own
    way. What is not named keeps γ = 0.5.
    """

    all: PerMemberRate | None = None
    embedding: PerMemberRate | None = None
    attention: PerMemberRate | None = None
    feed_forward: PerMemberRate | None = None
    recurrent: PerMemberRate | None = None
    projection: PerMemberRate | None = None

    @property
    def given(self) -> dict[str, PerMemberRate]:
        """What is set, by block type or `all`."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: values for name, values in fields.items() if values is not None}

    def of(self, block: WeightGroup, member: int) -> float:
        """A member's γ for a type of block."""
        values = self.given.get(block, self.all)
        return GAMMA if values is None else values[member]


class Members(Spec):
    """Who learns: one seed per member, and what else differs between members.

    A member's seed has three child streams - data, initialisation, order - and each can be held fixed for all members
    by `hold`, as in `hold={"data": 0}` for the same data under other initialisations. The remaining fields give one
    value per member in place of the recipe's; `initialisation_scale` multiplies the weight matrices at the start,
    `gamma` is their initialisation rate, as in `gamma={"all": (0.5, 0.8)}` for two members, and `data_size` must be a
    multiple of the batch.
    """

    seeds: tuple[Annotated[int, Field(ge=0)], ...] = (0,)
    hold: dict[Literal["data", "initialisation", "order"], int] = Field(default_factory=dict)
    learning_rate: tuple[Annotated[float, Field(gt=0)], ...] | None = None
    weight_decay: tuple[Annotated[float, Field(ge=0)], ...] | None = None
    clip: tuple[Annotated[float, Field(gt=0)], ...] | None = None
    initialisation_scale: tuple[Annotated[float, Field(ge=0)], ...] | None = None
    data_size: tuple[Annotated[int, Field(ge=1, le=MOST_SEQUENCES)], ...] | None = None
    gamma: Gamma = Gamma()

    @model_validator(mode="after")
    def _one_value_per_member(self) -> "Members":
        if not self.seeds:
            raise SpecError("seeds", "there are none", "give at least one, such as 0:10")
        scalars = {name: getattr(self, name) for name in PER_MEMBER if getattr(self, name) is not None}
        scalars |= {f"gamma.{block}": values for block, values in self.gamma.given.items()}
        for name, values in scalars.items():
            if len(values) != len(self.seeds):
                raise SpecError(name, f"{len(values)} values for {len(self.seeds)} members", "give one per seed")
        told_apart = list(zip(self.seeds, *scalars.values(), strict=True))
        if len(set(told_apart)) != len(told_apart):
            twice = next(seed for seed, *rest in told_apart if told_apart.count((seed, *rest)) > 1)
            raise SpecError("seeds", f"{twice} stands there twice", "give each member a seed of its own")
        return self

    def __len__(self) -> int:
        return len(self.seeds)

    def stream(self, name: Literal["data", "initialisation", "order"], member: int) -> int:
        """The seed from which a member's stream is drawn."""
        return self.hold.get(name, self.seeds[member])

    def take(self, members: range) -> "Members":
        """Some of the members, as members of their own."""
        cut = {
            name: getattr(self, name)[members.start : members.stop]
            for name in ("seeds", *PER_MEMBER)
            if getattr(self, name) is not None
        }
        rates = {block: values[members.start : members.stop] for block, values in self.gamma.given.items()}
        return self.replace(**cut, gamma=Gamma(**rates))


PER_MEMBER = ("learning_rate", "weight_decay", "clip", "initialisation_scale", "data_size")
