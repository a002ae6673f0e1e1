"""Joined experiments: those that differ only in numbers of their members, trained as one ensemble.

Numerical libraries choose how they multiply by the whole batch of products, so the last bits of a member can depend on
how many are computed with it, and where it lies among them. Each run therefore has `Places` in a pass of fixed size,
and keeps its bytes whichever runs take the other places.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from jaxtyping import Shaped
from torch import Tensor

from anchorlab.models.model import Model
from anchorlab.training.cost import LEAST_MAPPED, is_tiny
from anchorlab.training.evaluation import Row
from anchorlab.training.experiment import Experiment
from anchorlab.training.members import Gamma, Members
from anchorlab.training.optimisers import Rates
from anchorlab.training.trainer import ExecutionName, Keeper, Progress, TrainingState, fit

MOST_TOGETHER = 64
"""The most members of experiments that are trained as one ensemble; more would share little more."""

_GAMMA = "gamma."


class Places(NamedTuple):
    """Where the members of an experiment lie among those that are computed in one pass.

    Fields
        first: the place of its first member, from 0; the others follow
        of: the number of places in the pass, taken or not
    """

    first: int
    of: int


def share_a_pass(ours: Places | None, members: int, theirs: Places | None, others: int) -> bool:
    """Return whether experiments with `members` and `others` members have different places in passes of one size."""
    if ours is None or theirs is None or ours.of != theirs.of:
        return False
    return ours.first + members <= theirs.first or theirs.first + others <= ours.first


@dataclass(eq=False)
class Group:
    """Experiments that are trained as one ensemble, or an experiment that is trained by itself.

    Fields
        experiments: one, or several that `join` can join
        mapped: whether their members are mapped on a CPU, even if a single experiment is left; otherwise the number
            of members that are trained at once decides
    """

    experiments: list[Experiment]
    mapped: bool = False

    @property
    def places(self) -> list[Places | None]:
        """The places of each experiment, in order; None for an experiment that is trained by itself."""
        if len(self.experiments) == 1:
            return [None]
        starts = accumulate((len(one.members) for one in self.experiments), initial=0)
        return [Places(start, self.size) for start, _ in zip(starts, self.experiments, strict=False)]

    @property
    def size(self) -> int:
        """The number of members of all experiments."""
        return sum(len(one.members) for one in self.experiments)


def groups(experiments: Iterable[Experiment], most: Callable[[Experiment], int]) -> Iterator[Group]:
    """Divide experiments into those that are trained as one ensemble.

    Experiments are mapped if those that could be joined with each other have `LEAST_MAPPED` members or more.

    Args:
        experiments: all that are asked for, finished or not, so that those left by a kill find their earlier places
        most: returns the greatest number of members of a group of experiments like this one
    """
    alike: dict[str, list[Experiment]] = {}
    for one in experiments:
        key = common(one)
        if key is None:
            yield Group([one])
        else:
            alike.setdefault(key, []).append(one)
    for all_alike in alike.values():
        if sum(len(one.members) for one in all_alike) < LEAST_MAPPED:
            yield from (Group([one]) for one in all_alike)
            continue
        yield from _filled(all_alike, most(all_alike[0]))


def _filled(experiments: Sequence[Experiment], most: int) -> Iterator[Group]:
    """Yield groups of at most `most` members of experiments that can be joined."""
    smallest, filling = min(len(one.members) for one in experiments), list[Group]()
    for one in experiments:
        group = next((group for group in filling if group.size + len(one.members) <= most), None)
        if group is None:
            group = Group([], mapped=True)
            filling.append(group)
        group.experiments.append(one)
        if group.size + smallest > most:
            filling.remove(group)
            yield group
    yield from filling


def common(experiment: Experiment) -> str | None:
    """Return what experiments that can be joined have in common, as text; None if this one cannot be joined.

    Experiments can be joined if they train tiny models of anchorlab from initial weights to the end of their recipes,
    and differ only in learning rate, weight decay, clipping norm, and what `Members` lists by member.
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


def join(experiments: Sequence[Experiment], places: Sequence[Places]) -> Experiment:
    """Return one experiment with the members of all at their places; those at free places repeat the first member.

    The experiments must be of one group of `groups`.
    """
    first, others = experiments[0], len(experiments) - 1
    columns = [_numbers(one) for one in experiments]
    together = {name: tuple(value for each in columns for value in each[name]) for name in columns[0]}
    index = _sources(_taken(experiments, places), places[0].of)
    together = {name: tuple(values[source] for source in index) for name, values in together.items()}
    gamma = {name.removeprefix(_GAMMA): together.pop(name) for name in list(together) if name.startswith(_GAMMA)}
    members = Members.filling(hold=first.members.hold, gamma=Gamma(**gamma), **together)
    label = f"{first.cell.label} and {others} other{'s' if others > 1 else ''}" if others else first.cell.label
    return replace(first, members=members, label=label)


def fit_joined(
    experiments: Sequence[Experiment],
    places: Sequence[Places],
    keepers: Sequence[Keeper],
    states: Sequence[TrainingState | None],
    device: str,
    execution: ExecutionName,
    report: Callable[[Progress], None] | None = None,
    keep_every: float = 20.0,
) -> list[tuple[Row, ...]]:
    """Train experiments as one ensemble, each at its places and kept by its own keeper; return the rows of each.

    Args:
        experiments, places: as for `join`
        keepers: one for each experiment
        states: what the keepers have loaded: the same step of each, or None of each at the beginning
        device, execution, report, keep_every: as for `fit`
    """
    keeper = JoinedKeeper(keepers, experiments, places, states)
    joined = join(experiments, places)
    trained = fit(joined, device, execution, keeper, report, keep_every, idle=keeper.idle)
    return divided(trained.rows, keeper.shares)


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
        experiments, places: those that were joined, and where
        states: what the keepers have loaded: the same step of each, or None of each at the beginning
    """

    def __init__(
        self,
        keepers: Sequence[Keeper],
        experiments: Sequence[Experiment],
        places: Sequence[Places],
        states: Sequence[TrainingState | None],
    ) -> None:
        self.keepers, self.states, self.size = keepers, states, places[0].of
        self.shares = _taken(experiments, places)
        self.idle = frozenset(range(self.size)).difference(*self.shares)

    def load(self) -> TrainingState | None:
        """Return the states as one, or None at the beginning."""
        states = [state for state in self.states if state is not None]
        if not states:
            return None
        index = torch.tensor(_sources(self.shares, self.size))
        tensors = {name: torch.cat([state.tensors[name] for state in states])[index] for name in states[0].tensors}
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
            keeper.keep(replace(state, tensors=tensors, rows=rows, resting=frozenset()))

    def checkpoint(self, step: int, weights: Mapping[str, Shaped[Tensor, "member ..."]]) -> None:
        """Keep each experiment's weights at a step."""
        for keeper, share in zip(self.keepers, self.shares, strict=True):
            keeper.checkpoint(step, {name: value[share.start : share.stop] for name, value in weights.items()})


def _taken(experiments: Sequence[Experiment], places: Sequence[Places]) -> list[range]:
    """Return the places that each experiment's members take."""
    return [range(place.first, place.first + len(one.members)) for one, place in zip(experiments, places, strict=True)]


def _sources(taken: Sequence[range], size: int) -> list[int]:
    """Return which member fills each place, counted over all experiments; the first fills the free ones."""
    members = {place: source for source, place in enumerate(place for each in taken for place in each)}
    return [members.get(place, 0) for place in range(size)]


def divided(rows: Iterable[Row], shares: Sequence[range]) -> list[tuple[Row, ...]]:
    """Return the rows of each share of the members, whose members are counted from its first."""
    owner = {member: index for index, share in enumerate(shares) for member in share}
    found: list[list[Row]] = [[] for _ in shares]
    for row in rows:
        index = owner[row.member]
        found[index].append(row._replace(member=row.member - shares[index].start))
    return [tuple(each) for each in found]
