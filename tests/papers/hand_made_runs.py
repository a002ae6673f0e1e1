"""Runs made by hand: the metrics of an experiment are given, nothing is trained."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import product
from statistics import stdev
from types import MappingProxyType

import pytest
from torch import Tensor

from anchorlab.runs import metrics_frame
from anchorlab.training import Experiment, TrainedRun
from anchorlab.training.ensemble import Ensemble

Key = tuple[str, ...]
"""(split, metric), (split, metric, edit) or (split, metric, edit, group)."""


class HandMadeRun(TrainedRun):
    """A run whose metrics are given as values `[member][step]`, and its checkpoints as ensembles by step.

    What is given for one split is 9 in the others, and so are accuracy and loss in training and test: not to be read.
    """

    def __init__(
        self,
        experiment: Experiment,
        steps: Sequence[int],
        values: Mapping[Key, Sequence[Sequence[float]]],
        ensembles: Mapping[int, Ensemble] | None = None,
    ) -> None:
        self._experiment, self._steps, self._values, self._ensembles = experiment, steps, values, ensembles or {}

    _readings: Mapping[str, Tensor] = MappingProxyType({})  # its weights are at hand

    def __repr__(self) -> str:
        return f"HandMadeRun({self._experiment.label!r})"

    @property
    def experiment(self):
        return self._experiment

    @cached_property
    def metrics(self):
        seeds = self._experiment.members.seeds
        given = {(key[0], (*key[1:], *("none", "all")[len(key) - 2 :])): along for key, along in self._values.items()}
        splits = {"train", "test"} | {split for split, _ in given}
        read = {("accuracy", "none", "all"), ("loss", "none", "all")} | {what for _, what in given}
        unread = dict.fromkeys(product(splits, read), [[9.0] * len(self._steps)] * len(seeds))
        rows = []
        for (split, (metric, edit, group)), members in (unread | given).items():
            assert len(members) == len(seeds), f"{split} {metric}: give values for {len(seeds)} members"
            for member, along in enumerate(members):
                assert len(along) == len(self._steps), f"{split} {metric}: give a value for each of {len(self._steps)}"
                rows += [
                    (member, seeds[member], step, split, group, edit, metric, value)
                    for step, value in zip(self._steps, along, strict=True)
                ]
        return metrics_frame(rows)

    @property
    def checkpoints(self):
        return sorted(self._ensembles) or [self._steps[-1]]

    def ensemble(self, step=None):
        return self._ensembles[self.checkpoints[-1] if step is None else step]


def ends(*members: float) -> list[list[float]]:
    """The final values of members, after a first evaluation at 0."""
    return [[0.0, value] for value in members]


def run_ending(
    experiment: Experiment,
    test: Sequence[float],
    train: Sequence[float],
    ensembles: Mapping[int, Ensemble] | None = None,
    *,
    before: Sequence[float] = (0.0,),
) -> HandMadeRun:
    """A run whose members end with these accuracies, after others `before`.

    It is evaluated at 0 and at its end, and in between where `before` has more values.
    """
    count, whole = len(before), experiment.steps
    steps = [whole * at // count for at in range(count + 1)]
    ends = {("test", "accuracy"): test, ("train", "accuracy"): train}
    values = {key: [[*before, value] for value in accuracies] for key, accuracies in ends.items()}
    return HandMadeRun(experiment, steps, values, ensembles)


def seen_by_hand(kind, **readings):
    """What a study read, given as values in place of runs."""
    found = kind({})
    found.__dict__.update(readings)
    return found


def results_of(study, seen, profile="quick"):
    """The result of every claim of a study on what was seen, by the measure's name, whatever its preconditions."""
    from anchorlab.studies.claim import judge

    return {one.name: judge(study.claim(one), one(seen), profile) for one in study.claims}


def judged(study, seen, profile="quick") -> dict[str, float | None]:
    """The values of all claims whose preconditions are met, by the measure's name."""
    return {one.claim.id.rpartition("/")[2]: one.value for one in study.judge(seen, profile)}


def judgements_of(study, seen, profile="quick") -> dict[str, tuple[float | None, str]]:
    """The value and verdict of every claim, by the measure's name."""
    return {one.claim.id.rpartition("/")[2]: (one.value, one.verdict) for one in study.judge(seen, profile)}


def values_of(study, seen, profile="quick") -> dict[str, float | None]:
    """The value that every claim of a study gets from what was seen, by the measure's name."""
    return {name: one.value for name, one in results_of(study, seen, profile).items()}


STUDENT = {2: 12.706, 3: 4.303, 5: 2.776}
"""The printed quantiles of Student's t at 97.5 %, by the number of units."""


def student(value: float, *units: float) -> tuple[float, float]:
    """The 95 % interval of a value from what each unit gives alone."""
    half = STUDENT[len(units)] * stdev(units) / len(units) ** 0.5
    return pytest.approx((value - half, value + half), rel=1e-3)


def verdicts_of(study, seen, profile="quick") -> dict[str, str]:
    """The verdict of every claim of a study on its value alone, whatever its units, by the measure's name.

    A precondition is judged as the claims are: whether its value is in its band.
    """
    alone = {"interval": None, "units": ()}
    return {
        name: replace(one, **alone, **({"scope": "other"} if one.claim.precondition else {})).verdict
        for name, one in results_of(study, seen, profile).items()
    }
