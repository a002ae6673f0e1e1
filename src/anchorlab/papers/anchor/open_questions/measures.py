"""Measurements for the study of Table 1's questions: outcomes of choices, loss spikes, the layers' order."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.lens import Emergence, emergence, first_crossing, look
from anchorlab.papers.anchor.identity import PATTERNS, Heads, read_heads
from anchorlab.papers.anchor.open_questions.choices import BASE, COMPARED, MANY, TOGETHER, Choices, Label, Value
from anchorlab.studies.kit import along, at_end
from anchorlab.tasks import Batch
from anchorlab.training import Ensemble, TrainedRun

LEARNED = 0.9
"""The test accuracy from which on the task counts as learned."""

LOOKED_AT = 200  # test sequences over which attention is averaged
PEAK, WINDOW = 10, 5  # a spike is a loss of `PEAK` times the lowest of the `WINDOW` evaluations before


@dataclass(frozen=True)
class Outcome:
    """The results of all seeds under one value of a choice."""

    value: Value
    base: bool  # whether it is the base setting's
    steps: int  # the length of training
    test: Float[Tensor, "seed"]  # test accuracy at the end
    train: Float[Tensor, "seed"]  # training accuracy at the end
    times: Float[Tensor, "seed"]  # the step at which test accuracy first reaches `LEARNED`, NaN for never

    @property
    def until(self) -> Float[Tensor, "seed"]:
        """Steps until the task is learned; the length of training if it never is."""
        return self.times.nan_to_num(nan=float(self.steps))


def outcomes(runs: Mapping[Label, TrainedRun], setting: Choices) -> dict[str, tuple[Outcome, ...]]:
    """Return the outcomes of each choice, in the order of its values."""
    everyone, seeds = slice(None), setting.base.seeds
    together = {one: slice(at * seeds, (at + 1) * seeds) for at, one in enumerate(setting.together)}
    every = [
        _outcome(one, setting, runs[TOGETHER], together[one])
        if one in together
        else _outcome(one, setting, runs.get(one, runs[BASE]), everyone)
        for one in setting.values
    ]
    return {choice: tuple(one for one in every if one.value.choice == choice) for choice in setting.amounts}


def timed(runs: Mapping[Label, TrainedRun], setting: Choices) -> dict[Value, Outcome]:
    """Return, for each value whose learning time is compared, its outcome on many sequences."""
    compared = (Value(choice, amount) for choice, amounts in COMPARED.items() for amount in amounts)
    return {one: _outcome(one, setting, runs.get((MANY, one), runs[MANY]), slice(None)) for one in compared}


def _outcome(value: Value, setting: Choices, run: TrainedRun, members: slice) -> Outcome:
    steps, accuracy = along(run, "test", "accuracy")
    return Outcome(
        value,
        setting.is_base(value),
        run.experiment.steps,
        at_end(run, "test", "accuracy")[members],
        at_end(run, "train", "accuracy")[members],
        first_crossing(steps, accuracy, LEARNED)[members],
    )


def effect(accuracy: Float[Tensor, "value seed"]) -> Float[Tensor, "measured"]:
    """Return each seed's accuracy at the best value minus that at the worst, both chosen by the other seeds.

    Zero on average if the value makes no difference, whereas the highest mean minus the lowest is never negative.
    Empty for a single seed.
    """
    seeds = accuracy.shape[1]
    if seeds < 2:
        return accuracy.new_empty(0)
    others, each = accuracy.sum(dim=1, keepdim=True) - accuracy, torch.arange(seeds)
    return accuracy[others.argmax(dim=0), each] - accuracy[others.argmin(dim=0), each]


@dataclass(frozen=True)
class Spike:
    """A rise of the training loss until it returns to its level before."""

    member: int  # whose loss it is
    before: int  # the step of the lowest loss before the rise
    after: int  # the first step at which the loss is as low again
    loss: float  # the loss before
    peak: float  # the highest loss
    accuracy: tuple[float, float]  # test accuracy before and after
    drift: float  # how much test accuracy had risen in as long a time before
    seed: int  # the member's, which members at other learning rates have, too

    @property
    def gain(self) -> float:
        """How much test accuracy rises over the spike, beyond its drift."""
        return round(self.accuracy[1] - self.accuracy[0] - self.drift, 6)


def spikes(run: TrainedRun) -> list[Spike]:
    """Return the loss spikes of every member that end before training does.

    The run is evaluated often, on `train` and `test`.
    """
    steps, losses = along(run, "train", "loss")
    _, accuracies = along(run, "test", "accuracy")
    rows = zip(run.experiment.members.seeds, losses.tolist(), accuracies.tolist(), strict=True)
    return [
        Spike(
            member,
            steps[before],
            steps[after],
            loss[before],
            max(loss[before:after]),
            (accuracy[before], accuracy[after]),
            accuracy[before] - accuracy[max(2 * before - after, 0)],
            seed,
        )
        for member, (seed, loss, accuracy) in enumerate(rows)
        for before, after in _ends(loss)
    ]


def _ends(loss: Sequence[float]) -> Iterator[tuple[int, int]]:
    """Where each spike of a loss has its lowest loss before, and the first that is as low after."""
    at = WINDOW
    while at < len(loss):
        level = min(loss[at - WINDOW : at])
        if not loss[at] >= PEAK * level:
            at += 1
            continue
        after = next((index for index in range(at, len(loss)) if loss[index] <= level), None)
        if after is None:
            return
        yield max(index for index in range(at - WINDOW, at) if loss[index] == level), after
        at = after + 1


@dataclass(frozen=True)
class Layers:
    """The shift of layer 0 and the broadcast of layer 1 along training, each under `shift` and `broadcast`."""

    attention: Emergence  # of the best head of each layer
    halfway: Mapping[str, Float[Tensor, "learned"]]  # the step at which it has risen halfway, of members that learned


def layers_along(run: TrainedRun) -> Layers:
    """Read both layers at every checkpoint.

    A member has learned if it answers and its heads solve the identity task: layer 0 shifts by one,
    layer 1 broadcasts the position after the anchor.
    """
    batch = run.experiment.task.sample("test", LOOKED_AT, seed=0)

    def measure(ensemble: Ensemble) -> dict[str, Tensor]:
        heads = _heads(ensemble, batch)
        return {"shift": heads.shift_mass, "broadcast": heads.to_last}

    found, last = emergence(run, measure), _heads(run.ensemble(), batch)
    learned = (at_end(run, "test", "accuracy") >= LEARNED) & (last.shift_by == 1) & (last.broadcast_from == 1)
    return Layers(found, {name: _halfway(found.steps, one)[learned] for name, one in found.values.items()})


def _heads(ensemble: Ensemble, batch: Batch) -> Heads:
    return read_heads(look(ensemble, batch.inputs, record=PATTERNS), batch)


def _halfway(steps: Sequence[int], values: Float[Tensor, "member step"]) -> Float[Tensor, "member"]:
    """Return the step at which values have first risen halfway from their first to their last; NaN if they fall."""
    first, last = values[:, :1], values[:, -1:]
    return first_crossing(steps, ((values - first) / (last - first)).where(last > first, torch.nan), 0.5)
