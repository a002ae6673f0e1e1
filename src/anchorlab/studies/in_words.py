"""What a profile trains, in words: models, data, training and seeds; what its experiments share is said once."""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from anchorlab.models import ModelSpec
from anchorlab.training import Experiment, Recipe
from anchorlab.training.cost import parameter_count

NOUNS = {
    "decoder": ("a decoder", "decoders"),
    "vectors": ("a transformer", "transformers"),
    "recall": ("a recall model of two layers of one head", "recall models of two layers of one head"),
    "recall-one-layer": ("a one-layer recall model", "one-layer recall models"),
    "associative": ("an associative memory", "associative memories"),
    "superposition": ("an autoencoder", "autoencoders"),
    "lstm": ("an LSTM", "LSTMs"),
    "mamba": ("a Mamba", "Mambas"),
    "gated-linear-attention": ("a gated linear attention", "gated linear attentions"),
    "fnn": ("a fully connected network", "fully connected networks"),
}
"""The singular and the plural for models of each kind; models of any other kind are `models of kind ...`."""

SWITCHES = {
    "residual": "residual connections",
    "layer_norm": "layer norms",
    "feed_forward": "feed-forward layers",
    "output_linear": "output maps of attention",
    "projection": "a projection",
    "mask": "a mask",
}
"""The parts that a model's specification can switch off."""

IN_ORDER, MOST = 3, 5
"""Up to three values are listed in the order of the experiments, up to five by size; of more values, only the ends."""


def in_words(experiments: Sequence[Experiment], beside: Sequence[Experiment] = ()) -> str:
    """Describe the setting of experiments; given others as `beside`, only what differs from them, without schedules.

    >>> in_words(study("anchor/mechanism").experiments_of("quick"))
    'a decoder of 2 layers of 1 head, width 64 (109 k parameters); 2000 training sequences; 600 steps in batches of 50 '
    '(15 epochs); AdamW at up to 6e-3 (warm-up from 6e-4 over 60 steps, cosine to 6e-5 at the end), weight decay 0.3; '
    '10 seeds'
    """
    known = _parts(beside, brief=True) if beside else []
    return "; ".join(part for part in _parts(experiments, brief=bool(beside)) if part not in known)


def joined(words: Sequence[str]) -> str:
    """Join words as a list: `layers, heads and width`."""
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def listed(values: Iterable[float], text: "Callable[[float], str] | None" = None) -> str:
    """List distinct values as text: up to three in their order, up to five by size, of more only the ends.

    More than three consecutive integers are `1 to 8`, more than five at equal distances `500, 1000, ..., 7000`.
    """
    text = text or _number
    found = list(dict.fromkeys(values))
    if len(found) <= IN_ORDER:
        return joined(list(map(text, found)))
    ordered = sorted(found)
    distances = {after - before for before, after in pairwise(ordered)}
    if len(found) <= MOST and distances != {1}:
        return joined(list(map(text, ordered)))
    second = f", {text(ordered[1])}, ..., " if len(distances) == 1 and distances != {1} else " to "
    return f"{text(ordered[0])}{second}{text(ordered[-1])}"


def _parts(experiments: Sequence[Experiment], brief: bool) -> list[str]:
    kinds: dict[str, list[Experiment]] = {}
    for one in experiments:
        kinds.setdefault(one.model.kind, []).append(one)
    models = joined([_models(kind, some) for kind, some in kinds.items()])
    return [models, _data(experiments), _duration(experiments), _optimiser(experiments, brief), _seeds(experiments)]


def _models(kind: str, experiments: Sequence[Experiment]) -> str:
    """Describe the models of one kind, with their numbers of parameters."""
    specs = list(dict.fromkeys(one.model for one in experiments))
    one, several = NOUNS.get(kind, (f"a model of kind {kind}", f"models of kind {kind}"))
    text = (one if len(specs) == 1 else several) + _layers(specs)
    if off := [words for name, words in SWITCHES.items() if all(getattr(spec, name, 1) is False for spec in specs)]:
        text += f" without {joined(off)}"
    if widths := _whole(specs, "width"):
        text += f", width{'s' if len({*widths}) > 1 else ''} {listed(widths)}"
    if hidden := _whole(specs, "hidden"):
        text += f", {listed(hidden)} hidden units"
    counts = [parameter_count(each) for each in experiments]
    short = list(dict.fromkeys(map(_short, counts)))
    amount = joined(short) if len(short) <= IN_ORDER else f"{_short(min(counts))} to {_short(max(counts))}"
    return f"{text} ({amount} parameters)"


def _layers(specs: Sequence[ModelSpec]) -> str:
    """Describe the layers and heads of models, such as ` of 4 layers of 2 heads`; nothing for models without layers."""
    layers, heads = _whole(specs, "layers"), _whole(specs, "heads")
    pairs = list(dict.fromkeys(zip(layers, heads, strict=False)))
    if len({*layers}) > 1 and len({*heads}) > 1 and len(pairs) <= MOST:
        return " of " + joined([f"{_count([deep], 'layer')} of {_count([wide], 'head')}" for deep, wide in pairs])
    return "".join(f" of {_count(some, noun)}" for some, noun in ((layers, "layer"), (heads, "head")) if some)


def _data(experiments: Sequence[Experiment]) -> str:
    samples = [(one.members.data_size, one.recipe.data) for one in experiments]
    sizes = [size for own, data in samples if data.kind == "sample" for size in own or [data.size]]
    found = ["new sequences in every batch"] * any(data.kind == "stream" for _, data in samples)
    found += [f"{listed(sizes)} training sequences"] if sizes else []
    number, tasks = len({*sizes}), len({one.task.name or one.task.family for one in experiments})
    return joined(found) + f" ({number} sizes)" * (number > MOST) + f", {tasks} tasks" * (tasks > 1)


def _duration(experiments: Sequence[Experiment]) -> str:
    recipes, starts = [one.recipe for one in experiments], [one.start.recipe for one in experiments if one.start]
    text = f"{_time(recipes)} in batches of {listed([one.batch for one in recipes])}{_in_other_unit(experiments)}"
    if stops := dict.fromkeys(
        f"the {one.split} {one.metric} is {one.value:g}" for one in (r.stop for r in recipes) if one
    ):
        text = f"at most {text}, until {' or '.join(stops)}"
    return text + (f", {len(starts)} of {len(recipes)} trainings after {_time(starts)} of another" if starts else "")


def _time(recipes: Sequence[Recipe]) -> str:
    units = dict.fromkeys(one.unit for one in recipes)
    return " or ".join(_count([one.duration for one in recipes if one.unit == unit], unit[:-1]) for unit in units)


def _in_other_unit(experiments: Sequence[Experiment]) -> str:
    """Return the duration in the other unit, such as ` (15 epochs)` for 600 steps; empty if trainings differ."""
    sizes = [0 if one.members.data_size else getattr(one.recipe.data, "size", 0) for one in experiments]
    found = {(one.recipe.unit, one.steps, one.recipe.batch, size) for one, size in zip(experiments, sizes, strict=True)}
    ((unit, steps, batch, size),) = found if len(found) == 1 else [("", 0, 0, 0)]
    if unit == "epochs":
        return f" ({_number(steps)} steps)"
    return f" ({round(steps * batch / size, 2):g} epochs)" if batch < size < steps * batch else ""


def _optimiser(experiments: Sequence[Experiment], brief: bool) -> str:
    recipes = [one.recipe for one in experiments]
    rates = [rate for one in experiments for rate in one.members.learning_rate or [one.recipe.optimiser.learning_rate]]
    decays = [decay for one in experiments for decay in one.members.weight_decay or [one.recipe.optimiser.weight_decay]]
    momenta = [getattr(one.optimiser, "momentum", 0.0) for one in recipes]
    names = joined(list(dict.fromkeys(type(one.optimiser).__name__ for one in recipes)))
    at = "at" if all(one.schedule.kind == "constant" for one in recipes) else "at up to"
    schedule = "" if brief or len({*rates}) > 1 else _schedule(recipes, rates[0])
    momentum = f", momentum {listed(momenta, _rate)}" if any(momenta) else ""
    kinds = [*dict.fromkeys(kind for one in recipes for kind in one.optimiser.undecayed)]
    without = f" ({joined(kinds)} weights excluded)" if kinds else ""
    decay = f"weight decay {listed(decays, _rate)}{without}" if any(decays) else "no weight decay"
    losses = dict.fromkeys("the task's" if one.loss is None else repr(one.loss) for one in recipes)
    loss = f", loss {joined(list(losses))}" if losses.keys() != {"the task's"} else ""
    return f"{names} {at} {listed(rates, _rate)}{schedule}{momentum}, {decay}{loss}"


def _schedule(recipes: Sequence[Recipe], peak: float) -> str:
    """Describe the schedule of a learning rate; empty if it is constant or differs between recipes."""
    first, schedule = recipes[0], recipes[0].schedule
    if schedule.kind == "constant" or len({(one.schedule, one.unit, one.duration) for one in recipes}) > 1:
        return ""
    at = f"{first.unit[:-1]} {_number(schedule.horizon)}" if schedule.horizon != first.duration else "the end"
    warmup = f"warm-up from {_rate(schedule.start * peak)} over {_count([schedule.warmup], first.unit[:-1])}"
    words = [warmup] * (schedule.warmup > 0) + [f"cosine to {_rate(schedule.end * peak)} at {at}"] * (schedule.end < 1)
    return f" ({', '.join(words)})" if words else ""


def _seeds(experiments: Sequence[Experiment]) -> str:
    members = [one.members for one in experiments]
    numbers = [len({*one.seeds}) for one in members]
    text = _count(numbers, "seed") + " each" * (len(numbers) > 1 and len({*numbers}) == 1)
    if gammas := [rate for one in members for values in one.gamma.given.values() for rate in values]:
        text += f", γ = {listed(gammas, _rate)}"
    if scales := [scale for one in members for scale in one.initialisation_scale or ()]:
        text += f", initial weights times {listed(scales, _rate)}"
    return text


def _whole(specs: Sequence[ModelSpec], field: str) -> list[int]:
    """Return the values of a field in all specifications; empty unless all have an integer there."""
    found = [value for spec in specs if isinstance(value := getattr(spec, field, None), int)]
    return found if len(found) == len(specs) else []


def _count(numbers: Sequence[int], noun: str) -> str:
    return f"{listed(numbers)} {noun}{'' if {*numbers} == {1} else 's'}"


def _number(value: float) -> str:
    return f"{value:,}" if value >= 10_000 else str(value)


def _rate(value: float) -> str:
    """Write a rate as people do: `6e-3`, `0.03`."""
    if value == 0 or value >= 0.01:
        return f"{value:g}"
    digits, exponent = f"{value:.2e}".split("e")
    return f"{float(digits):g}e{int(exponent)}"


def _short(count: float) -> str:
    """Write a number of parameters with three digits: `109 k`, `5.65 M`."""
    size, sign = next(((size, sign) for size, sign in ((1, ""), (1e3, " k")) if count / size < 999.5), (1e6, " M"))
    return f"{count / size:.3g}{sign}"
