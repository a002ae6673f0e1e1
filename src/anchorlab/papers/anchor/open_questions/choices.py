"""What the study of Table 1's questions trains: a base setting, and variants with one choice changed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from anchorlab.models import DecoderSpec, Remove
from anchorlab.papers.anchor.settings import Setting, paper_recipe, repeated
from anchorlab.studies.quick import quick_model, quick_recipe
from anchorlab.tasks import task
from anchorlab.training import Constant, Evaluation, Experiment, Members, Times

HEADS, SHARED, LAYERS, WIDTH = "heads", "heads, one total width", "layers", "width"
RATE, BATCH, DECAY, SCALE = "learning rate", "batch", "weight decay", "initial scale"

BASE, TOGETHER, MANY, ORDER, SPIKES = "base", "together", "many sequences", "order of layers", "loss spikes"
"""Labels of experiments. A `Value` labels its own experiment, and `(MANY, value)` its experiment on many sequences."""

FEW_HEADS, SEVERAL_HEADS = 1, 4
FEW_LAYERS, SEVERAL_LAYERS = 2, 4
"""The numbers that are compared. One layer cannot solve the task (`anchor/structures`), so two is the fewest."""

COMPARED: Mapping[str, tuple[int, int]] = {SHARED: (FEW_HEADS, SEVERAL_HEADS), LAYERS: (FEW_LAYERS, SEVERAL_LAYERS)}
"""The choices whose learning times are compared, too. Heads share one total width: if several heads were each as
wide as a single one, their benefit could come from more parameters."""

_OF_MODEL = {HEADS: "heads", SHARED: "heads", LAYERS: "layers", WIDTH: "width"}
_OF_MEMBERS = {RATE: "learning_rate", DECAY: "weight_decay", SCALE: "initialisation_scale"}
"""The choices that are a field of the model, and those that are a scalar of the members."""


@dataclass(frozen=True)
class Value:
    """One value of a choice, as a number."""

    choice: str
    amount: float

    @property
    def label(self) -> str:
        """The amount as short text: `4`, `0.3`, `3e-4`."""
        return (
            f"{self.amount:g}" if self.amount == 0 or self.amount >= 0.01 else f"{self.amount:.0e}".replace("e-0", "e-")
        )


Label = str | Value | tuple[str, Value]


@dataclass(frozen=True)
class Choices:
    """A base setting and the values of each choice, including the base's own."""

    base: Setting  # the setting in which one choice at a time is changed
    amounts: Mapping[str, tuple[float, ...]]  # the values of each choice, rising
    speed: Setting  # the base on enough sequences for all seeds to learn, to measure how soon they do
    order: Setting  # the model whose two layers are looked at along training
    spikes: Setting  # the base at a constant learning rate, without clipping
    rates: tuple[float, ...]  # the constant learning rates

    @property
    def values(self) -> list[Value]:
        """Every value of every choice."""
        return [Value(choice, amount) for choice, amounts in self.amounts.items() for amount in amounts]

    @property
    def scalars(self) -> Mapping[str, float]:
        """The base's value of each choice that members of one experiment can differ in."""
        optimiser = self.base.recipe.optimiser
        return {RATE: optimiser.learning_rate, DECAY: optimiser.weight_decay, SCALE: 1.0}

    def is_base(self, value: Value) -> bool:
        """Return whether a value equals the base setting's."""
        if value.choice in _OF_MEMBERS:
            return value.amount == self.scalars[value.choice]
        base = self.base.experiment(task("anchor/identity"), "")
        return changed(base, value, "") == base

    @property
    def alone(self) -> list[Value]:
        """The values other than the base's that need an experiment of their own."""
        return [one for one in self.values if one.choice not in _OF_MEMBERS and not self.is_base(one)]

    @property
    def together(self) -> list[Value]:
        """The values other than the base's that train as members of one experiment."""
        return [one for one in self.values if one.choice in _OF_MEMBERS and not self.is_base(one)]

    @property
    def timed(self) -> list[Value]:
        """The numbers of heads and layers whose learning time is compared with that of the base setting."""
        return [one for one in self.alone if one.amount in COMPARED.get(one.choice, ())]


def experiments(setting: Choices) -> dict[Label, Experiment]:
    """Return the experiments of a setting.

    In order: the base; each other model or batch size; the other learning rates, weight decays and initial scales as
    members of one experiment, all seeds at the first value, then at the next; the base on many sequences, then the
    values whose learning time is compared with it; the two layers along training; the constant learning rates.
    """
    base = setting.base.experiment(task("anchor/identity"), "the base setting")
    many = setting.speed.experiment(base.task, f"{setting.speed.size} sequences")
    timed = {(MANY, one): changed(many, one, f"{many.label}, {one.choice}: {one.label}") for one in setting.timed}
    scalars = {
        _OF_MEMBERS[choice]: [one.amount if one.choice == choice else usual for one in setting.together]
        for choice, usual in setting.scalars.items()
    }
    return {
        BASE: base,
        **{one: changed(base, one, f"{one.choice}: {one.label}") for one in setting.alone},
        TOGETHER: _at_each(base, "learning rates, weight decays, initial scales", **scalars),
        MANY: _without_layers(many),
        **{label: _without_layers(one) for label, one in timed.items()},
        ORDER: setting.order.experiment(base.task, "two layers along training"),
        SPIKES: _at_each(
            setting.spikes.experiment(base.task, ""), "constant learning rates", learning_rate=setting.rates
        ),
    }


def changed(base: Experiment, value: Value, label: str) -> Experiment:
    """Return an experiment with one value of its model or recipe changed; `SHARED` keeps the heads' total width."""
    model, amount = base.model, value.amount
    if value.choice == BATCH:
        return replace(base, recipe=base.recipe.replace(batch=amount), label=label)
    fields = {_OF_MODEL[value.choice]: amount}
    if value.choice == SHARED:
        fields["head_width"] = model.heads * model.head_width // amount  # type: ignore[attr-defined]
    return replace(base, model=model.replace(**fields), label=label)


def _without_layers(experiment: Experiment) -> Experiment:
    """Return an experiment that is also measured without its last layers, from one to all but the first."""
    layers = experiment.model.layers  # type: ignore[attr-defined]
    edits = {
        f"without the last {count}": tuple(Remove(weight=f"blocks.{at}") for at in range(layers - count, layers))
        for count in range(1, layers)
    }
    evaluation = experiment.recipe.evaluation.replace(edits=edits)
    return replace(experiment, recipe=experiment.recipe.replace(evaluation=evaluation))


def _at_each(base: Experiment, label: str, **scalars: Sequence[float]) -> Experiment:
    """Return an experiment whose members are all its seeds at the first value of each scalar, then at the next."""
    seeds, count = base.members.seeds, len(next(iter(scalars.values())))
    given = {name: repeated(values, len(seeds)) for name, values in scalars.items()}
    return replace(base, members=Members(seeds=seeds * count, **given), label=label)


_SMALL = Setting(quick_model(), quick_recipe(450, learning_rate=3e-3, evaluations=20), seeds=10)

QUICK = Choices(
    base=_SMALL,
    amounts={
        HEADS: (1, 2, 4),
        SHARED: (1, 2, 4),
        LAYERS: (1, 2, 3, 4),
        WIDTH: (16, 32, 64, 128),
        RATE: (3e-4, 1e-3, 3e-3, 1e-2, 3e-2),
        BATCH: (15, 50, 150),
        DECAY: (0.0, 0.1, 0.3, 1.0, 3.0),
        SCALE: (0.1, 0.3, 1.0, 3.0),
    },
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
    amounts={
        HEADS: (1, 2, 4, 8),
        SHARED: (1, 2, 4, 8),
        LAYERS: (1, 2, 4, 8),
        WIDTH: (100, 200, 400, 800),
        RATE: (2e-5, 6e-5, 2e-4, 6e-4, 2e-3),
        BATCH: (15, 50, 150),
        DECAY: (0.0, 0.003, 0.01, 0.03, 0.1),
        SCALE: (0.1, 0.3, 1.0, 3.0),
    },
    speed=replace(_FULL, recipe=paper_recipe(1000, every=5)),
    order=replace(
        _FULL,
        model=DecoderSpec(layers=2, heads=1, head_width=64),
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


def _tiny(setting: Setting, steps: int, size: int = 200) -> Setting:
    return replace(setting.shortened(steps, size=size), model=quick_model(width=16))


SMOKE = Choices(
    base=_tiny(QUICK.base, 2),
    amounts={
        HEADS: (1, 4),
        SHARED: (1, 4),
        LAYERS: (2, 4),
        WIDTH: (16, 32),
        RATE: (3e-3, 1e-2),
        BATCH: (15, 50),
        DECAY: (0.1, 0.3),
        SCALE: (0.3, 1.0, 3.0),
    },
    speed=_tiny(QUICK.speed, 2, size=300),
    order=_tiny(QUICK.order, 4),
    spikes=replace(
        _tiny(QUICK.base, 4),
        recipe=QUICK.spikes.recipe.replace(duration=4, evaluation=Evaluation(every=2, size=20)),
    ),
    rates=QUICK.rates,
)
