"""What the study of Table 1's questions trains: a base setting, then one choice at a time made otherwise."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from anchorlab.models import DecoderSpec
from anchorlab.papers.anchor.settings import Setting, paper_recipe
from anchorlab.studies.quick import quick_model, quick_recipe
from anchorlab.studies.seeds import fresh
from anchorlab.tasks import task
from anchorlab.training import Constant, Evaluation, Experiment, Members, Times

HEADS, SHARED, LAYERS, WIDTH = "heads", "heads, one total width", "layers", "width"
RATE, BATCH, DECAY, SCALE = "learning rate", "batch", "weight decay", "initial scale"

FEW_HEADS, SEVERAL_HEADS = 1, 4
FEW_LAYERS, SEVERAL_LAYERS = 2, 4
"""The numbers that are compared. One layer cannot solve the task (`anchor/structures`), so that the least is two."""

COMPARED: Mapping[str, tuple[int, int]] = {SHARED: (FEW_HEADS, SEVERAL_HEADS), LAYERS: (FEW_LAYERS, SEVERAL_LAYERS)}
"""The choices whose learning times are compared, too. Heads share one total width: with heads as wide as before, the
benefit of several heads may come from more parameters."""

Scalar = Literal["learning_rate", "weight_decay", "initialisation_scale"]


@dataclass(frozen=True)
class Value:
    """One value of a choice: fields of the model or of the recipe, or a scalar of the members; all else is the base's.

    Args:
        amount: the value as a number
        model: fields of the model
        recipe: fields of the recipe
        scalar: the scalar of the members that has this amount
    """

    amount: float
    model: Mapping[str, int] = field(default_factory=dict)
    recipe: Mapping[str, int] = field(default_factory=dict)
    scalar: Scalar | None = None

    @property
    def label(self) -> str:
        """The amount as short text: `4`, `0.3`, `3e-4`."""
        return (
            f"{self.amount:g}" if self.amount == 0 or self.amount >= 0.01 else f"{self.amount:.0e}".replace("e-0", "e-")
        )


@dataclass(frozen=True)
class Choices:
    """A base setting and the values of each choice, one of which is the base's own.

    Args:
        base: what everything else differs from in one choice
        values: the values of each choice, rising
        speed: the base on enough sequences for all seeds to learn, for the time this takes
        order: the model whose two layers are looked at along training
        spikes: the base at a constant learning rate, without clipping
        rates: the constant learning rates
    """

    base: Setting
    values: Mapping[str, tuple[Value, ...]]
    speed: Setting
    order: Setting
    spikes: Setting
    rates: tuple[float, ...]

    def is_base(self, value: Value) -> bool:
        """Return whether a value equals the base setting's."""
        base = self.base
        if value.scalar is not None:
            return value.amount == self.scalars[value.scalar]
        return base.model.replace(**value.model) == base.model and base.recipe.replace(**value.recipe) == base.recipe

    @property
    def scalars(self) -> Mapping[Scalar, float]:
        """The base's scalars of members."""
        optimiser = self.base.recipe.optimiser
        return {
            "learning_rate": optimiser.learning_rate,
            "weight_decay": optimiser.weight_decay,
            "initialisation_scale": 1.0,
        }

    @property
    def alone(self) -> list[tuple[str, Value]]:
        """The values that are not the base's and need an experiment of their own, each with its choice."""
        return [one for one in self._others() if one[1].scalar is None]

    @property
    def together(self) -> list[tuple[str, Value]]:
        """The values that are not the base's and train as members of one experiment, each with its choice."""
        return [one for one in self._others() if one[1].scalar is not None]

    @property
    def timed(self) -> list[tuple[str, Value]]:
        """The values whose learning time is compared with the base's, each with its choice."""
        return [(choice, one) for choice, one in self.alone if one.amount in COMPARED.get(choice, ())]

    def _others(self) -> Iterator[tuple[str, Value]]:
        return ((choice, one) for choice, values in self.values.items() for one in values if not self.is_base(one))


def experiments(setting: Choices) -> list[Experiment]:
    """Return what a setting trains.

    That is the base, each other model or recipe, and all other scalars as members of one experiment, where the seeds at
    the first value come first; the base on many sequences, and the values whose time is compared with it; the layers'
    order; the spikes.
    """
    base = setting.base.experiment(task("anchor/identity"), "the base setting")
    many = setting.speed.experiment(base.task, f"{setting.speed.size} sequences")
    return [
        base,
        *(_changed(base, one, f"{choice}: {one.label}") for choice, one in setting.alone),
        replace(base, members=_members(setting), label="learning rates, weight decays, initial scales"),
        many,
        *(_changed(many, one, f"{many.label}, {choice}: {one.label}") for choice, one in setting.timed),
        setting.order.experiment(base.task, "two layers along training"),
        replace(
            setting.spikes.experiment(base.task, "constant learning rates"),
            members=Members(
                seeds=fresh(setting.spikes.seeds) * len(setting.rates),
                learning_rate=_repeated(setting.rates, setting.spikes.seeds),
            ),
        ),
    ]


def _changed(base: Experiment, value: Value, label: str) -> Experiment:
    model, recipe = base.model.replace(**value.model), base.recipe.replace(**value.recipe)
    return replace(base, model=model, recipe=recipe, label=label)


def _members(setting: Choices) -> Members:
    """The seeds at every scalar that is not the base's."""
    values, seeds = [one for _, one in setting.together], setting.base.seeds
    given = {
        name: _repeated([one.amount if one.scalar == name else usual for one in values], seeds)
        for name, usual in setting.scalars.items()
    }
    return Members(seeds=fresh(seeds) * len(values), **given)


def _repeated(values: Sequence[float], times: int) -> tuple[float, ...]:
    return tuple(value for value in values for _ in range(times))


def _values(
    base: DecoderSpec,
    heads: Sequence[int],
    layers: Sequence[int],
    widths: Sequence[int],
    rates: Sequence[float],
    batches: Sequence[int],
    decays: Sequence[float],
    scales: Sequence[float],
) -> dict[str, tuple[Value, ...]]:
    total = base.heads * base.head_width
    return {
        HEADS: tuple(Value(count, model={"heads": count}) for count in heads),
        SHARED: tuple(Value(count, model={"heads": count, "head_width": total // count}) for count in heads),
        LAYERS: tuple(Value(count, model={"layers": count}) for count in layers),
        WIDTH: tuple(Value(width, model={"width": width}) for width in widths),
        RATE: tuple(Value(rate, scalar="learning_rate") for rate in rates),
        BATCH: tuple(Value(batch, recipe={"batch": batch}) for batch in batches),
        DECAY: tuple(Value(decay, scalar="weight_decay") for decay in decays),
        SCALE: tuple(Value(scale, scalar="initialisation_scale") for scale in scales),
    }


_SMALL = Setting(quick_model(), quick_recipe(450, learning_rate=3e-3, evaluations=20), seeds=10)

QUICK = Choices(
    base=_SMALL,
    values=_values(
        quick_model(),
        heads=(1, 2, 4),
        layers=(1, 2, 3, 4),
        widths=(16, 32, 64, 128),
        rates=(3e-4, 1e-3, 3e-3, 1e-2, 3e-2),
        batches=(15, 50, 150),
        decays=(0.0, 0.1, 0.3, 1.0, 3.0),
        scales=(0.1, 0.3, 1.0, 3.0),
    ),
    speed=replace(_SMALL, recipe=quick_recipe(1000, learning_rate=3e-3, evaluations=60)),
    order=replace(
        _SMALL, recipe=quick_recipe(1000, learning_rate=3e-3).replace(checkpoints=Times(at=tuple(range(0, 201, 4))))
    ),
    spikes=replace(
        _SMALL,
        recipe=quick_recipe(450, 1200, learning_rate=3e-3).replace(
            schedule=Constant(), clip=None, evaluation=Evaluation(every=10, size=250)
        ),
    ),
    rates=(3e-3, 1e-2),
)

_FULL = Setting(DecoderSpec(), paper_recipe(400), seeds=10)

PAPER = Choices(
    base=_FULL,
    values=_values(
        DecoderSpec(),
        heads=(1, 2, 4, 8),
        layers=(1, 2, 4, 8),
        widths=(100, 200, 400, 800),
        rates=(2e-5, 6e-5, 2e-4, 6e-4, 2e-3),
        batches=(15, 50, 150),
        decays=(0.0, 0.003, 0.01, 0.03, 0.1),
        scales=(0.1, 0.3, 1.0, 3.0),
    ),
    speed=replace(_FULL, recipe=paper_recipe(1000, every=5)),
    order=replace(
        _FULL,
        model=DecoderSpec(layers=2, heads=1),
        recipe=paper_recipe(1000, epochs=800).replace(checkpoints=Times(at=tuple(range(0, 401, 5)))),
    ),
    spikes=replace(
        _FULL,
        recipe=paper_recipe(400, epochs=1000).replace(
            schedule=Constant(), clip=None, evaluation=Evaluation(every=1, size=250)
        ),
    ),
    rates=(2e-4, 6e-4),
)


def _smoke() -> Choices:
    values = _values(
        quick_model(),
        heads=(1, 4),
        layers=(2, 4),
        widths=(32, 64),
        rates=(1e-3, 3e-3, 1e-2),
        batches=(15, 50, 150),
        decays=(0.1, 0.3, 1.0),
        scales=(0.3, 1.0, 3.0),
    )
    constant = QUICK.spikes.recipe.replace(duration=4, evaluation=Evaluation(every=2, size=20))
    return Choices(
        base=QUICK.base.shortened(steps=4),
        values=values,
        speed=QUICK.speed.shortened(steps=4),
        order=QUICK.order.shortened(steps=4),
        spikes=replace(QUICK.spikes, recipe=constant, seeds=2),
        rates=QUICK.rates,
    )


SMOKE = _smoke()
