"""Joined experiments: those that differ only in numbers of their members, trained as one ensemble.

What a member ends with does not depend on the others that are mapped with it, so each run keeps its own bytes.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

import torch
from jaxtyping import Shaped
from torch import Tensor

from anchorlab.models.model import Model
from anchorlab.training.cost import LEAST_MAPPED, is_tiny
from anchorlab.training.evaluation import Row
from anchorlab.training.experiment import Experiment
from anchorlab.training.members import Gamma, Members
from anchorlab.training.optimisers import Rates
from anchorlab.training.trainer import Keeper, TrainingState

MOST_TOGETHER = 64
"""The most members of experiments that are trained as one ensemble; more would share little more."""

_GAMMA = "gamma."


@dataclass(eq=False)
class Group:
    """Experiments that are trained as one ensemble, or an experiment that is trained by itself.

    Fields
        experiments: one, or several that `join` can join
        mapped: whether their members are mapped on a CPU; else that is decided by how many are trained at once
    """

    experiments: list[Experiment]
    mapped: bool = False

    @property
    def size(self) -> int:
        """The number of members of all."""
        return sum(len(one.members) for one in self.experiments)

    def has_room(self, experiment: Experiment, most: int) -> bool:
        """Return whether an experiment can join, after which there are at most `most` members, no two of them alike."""
        if self.size + len(experiment.members) > most:
            return False
        known = {member for one in self.experiments for member in zip(*_numbers(one).values(), strict=True)}
        return known.isdisjoint(zip(*_numbers(experiment).values(), strict=True))


def groups(
    experiments: Iterable[Experiment], most: Callable[[Experiment], int], finished: Sequence[Experiment] = ()
) -> Iterator[Group]:
    """Divide experiments into those that are trained as one ensemble.

    Experiments are mapped if those that could be joined with each other have `LEAST_MAPPED` members or more: that is
    the same wherever they are trained, however large the groups are, and for what is left after a kill.

    Args:
        experiments: in any order
        most: returns the greatest number of members of a group of experiments like this one
        finished: those that were asked for with them and are not trained any more
    """
    alike: dict[str, list[Experiment]] = {}
    for one in experiments:
        key = common(one)
        if key is None:
            yield Group([one])
        else:
            alike.setdefault(key, []).append(one)
    for key, all_alike in alike.items():
        count = sum(len(one.members) for one in all_alike)
        if count < LEAST_MAPPED:
            count += sum(len(one.members) for one in finished if common(one) == key)
        if count < LEAST_MAPPED:
            yield from (Group([one]) for one in all_alike)
            continue
        yield from _filled(all_alike, most(all_alike[0]))


def _filled(experiments: Sequence[Experiment], most: int) -> Iterator[Group]:
    """Yield experiments that can be joined in groups of at most so many members."""
    smallest, filling = min(len(one.members) for one in experiments), list[Group]()
    for one in experiments:
        group = next((group for group in filling if group.has_room(one, most)), None)
        if group is None:
            group = Group([], mapped=True)
            filling.append(group)
        group.experiments.append(one)
        if group.size + smallest > most:
            filling.remove(group)
            yield group
    yield from filling


def common(experiment: Experiment) -> str | None:
    """Return what experiments that can be joined have in common, as text; None for one that cannot be joined.

    Joined can be tiny ones of anchorlab's models, trained from initial weights to the end of their recipes, which
    differ only in learning rate, weight decay, clipping norm, and what `Members` lists by member.
    """
    recipe = experiment.recipe
    if experiment.start is not None or recipe.stop is not None or not is_tiny(experiment):
        return None
    if not isinstance(experiment.template, Model):
        return None
    spec = experiment.cell.spec
    optimiser = {**spec["recipe"]["optimiser"], "learning_rate": None, "weight_decay": None}
    rest = {**spec["recipe"], "optimiser": optimiser, "clip": None}
    return json.dumps([spec["task"], spec["model"], rest, experiment.members.hold, list(_numbers(experiment))])


def join(experiments: Sequence[Experiment]) -> Experiment:
    """Return one experiment with the members of all, in their order; they must be of one group of `groups`."""
    first, others = experiments[0], len(experiments) - 1
    if not others:
        return first
    columns = [_numbers(one) for one in experiments]
    together = {name: tuple(value for each in columns for value in each[name]) for name in columns[0]}
    gamma = {name.removeprefix(_GAMMA): together.pop(name) for name in list(together) if name.startswith(_GAMMA)}
    members = Members(hold=first.members.hold, gamma=Gamma(**gamma), **together)
    label = f"{first.cell.label} and {others} other{'s' if others > 1 else ''}"
    return replace(first, members=members, label=label)


def _numbers(experiment: Experiment) -> dict[str, tuple[Any, ...]]:
    """Return, by field of `Members`, the values of each member; without fields that no member has."""
    members, rates = experiment.members, Rates.of(experiment.recipe, experiment.members)
    found = {
        "seeds": members.seeds,
        "learning_rate": rates.learning,
        "weight_decay": rates.decay,
        "clip": rates.clip,
        "initialisation_scale": members.initialisation_scale or (1.0,) * len(members),
        "data_size": members.data_size,
        **{f"{_GAMMA}{group}": values for group, values in members.gamma.given.items()},
    }
    return {name: values for name, values in found.items() if values is not None}


class JoinedKeeper:
    """Keep what belongs to each of several joined experiments with its own keeper.

    Args:
        keepers: one for each experiment
        experiments: those that were joined, in their order
        states: what the keepers have loaded: the same step of each, or None of each at the beginning
    """

    def __init__(
        self, keepers: Sequence[Keeper], experiments: Sequence[Experiment], states: Sequence[TrainingState | None]
    ) -> None:
        self.keepers, self.states = keepers, states
        self.shares = shares(experiments)

    def load(self) -> TrainingState | None:
        """Return the states as one, or None at the beginning."""
        states = [state for state in self.states if state is not None]
        if not states:
            return None
        tensors = {name: torch.cat([state.tensors[name] for state in states]) for name in states[0].tensors}
        rows = (
            row._replace(member=row.member + share.start)
            for state, share in zip(states, self.shares, strict=True)
            for row in state.rows
        )
        return TrainingState(states[0].step, tensors, tuple(rows), frozenset(), states[0].execution)

    def keep(self, state: TrainingState) -> None:
        """Keep each experiment's part of a state."""
        for keeper, share, rows in zip(self.keepers, self.shares, divided(state.rows, self.shares), strict=True):
            tensors = {name: value[share.start : share.stop] for name, value in state.tensors.items()}
            keeper.keep(replace(state, tensors=tensors, rows=rows))

    def checkpoint(self, step: int, weights: Mapping[str, Shaped[Tensor, "member ..."]]) -> None:
        """Keep each experiment's weights at a step."""
        for keeper, share in zip(self.keepers, self.shares, strict=True):
            keeper.checkpoint(step, {name: value[share.start : share.stop] for name, value in weights.items()})


def shares(experiments: Sequence[Experiment]) -> list[range]:
    """Return the indices of each experiment's members among all."""
    ends = accumulate((len(one.members) for one in experiments), initial=0)
    return [range(start, end) for start, end in pairwise(ends)]


def divided(rows: Iterable[Row], shares: Sequence[range]) -> list[tuple[Row, ...]]:
    """Return the rows of each share of the members, whose members are counted from its first."""
    owner = [index for index, share in enumerate(shares) for _ in share]
    found: list[list[Row]] = [[] for _ in shares]
    for row in rows:
        index = owner[row.member]
        found[index].append(row._replace(member=row.member - shares[index].start))
    return [tuple(each) for each in found]
