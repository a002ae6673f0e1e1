"""Joined experiments: train experiments that differ only in per-member numbers as one ensemble.

Numerical libraries choose an algorithm by the size of the whole batch of products, so the last bits of a member can
depend on how many members one pass computes, and on the member's place among them. Each run therefore has `Places` in a
pass of fixed size, and gets the same bytes whichever runs take the other places.
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
from anchorlab.training.trainer import Keeper, Trained, TrainingState, fit

_GAMMA = "gamma."


class Places(NamedTuple):
    """The places of an experiment's members in a pass, which computes a fixed number of members at once.

    Fields
        first: the place of the first member, from 0; the other members follow
        of: the number of places in the pass, taken or free
    """

    first: int
    of: int


def share_a_pass(ours: Places | None, members: int, theirs: Places | None, others: int) -> bool:
    """Return whether two experiments can share a pass: passes of the same size, and places that do not overlap.

    `members` and `others` are the numbers of members of the first and the second experiment.
    """
    if ours is None or theirs is None or ours.of != theirs.of:
        return False
    return ours.first + members <= theirs.first or theirs.first + others <= ours.first


@dataclass(eq=False)
class Joint:
    """Experiments that are trained as one ensemble, or a single experiment.

    Fields
        experiments: one experiment, or several that `join` can join
        mapped: True if the members are mapped on a CPU, even if there is a single experiment; if False, the number of
            members that are trained at once decides
    """

    experiments: list[Experiment]
    mapped: bool = False

    @property
    def addresses(self) -> list[str]:
        """The address of each experiment, in order."""
        return [one.cell.address for one in self.experiments]

    @property
    def places(self) -> list[Places | None]:
        """The places of each experiment, in order; None for a single experiment."""
        if len(self.experiments) == 1:
            return [None]
        starts = accumulate((len(one.members) for one in self.experiments), initial=0)
        return [Places(start, self.size) for start, _ in zip(starts, self.experiments, strict=False)]

    @property
    def size(self) -> int:
        """The number of members of all experiments together."""
        return sum(len(one.members) for one in self.experiments)


def joints(experiments: Iterable[Experiment], most: Callable[[Experiment], int]) -> Iterator[Joint]:
    """Yield experiments grouped into joints, each of which is trained as one ensemble.

    Experiments that can be joined are joined, and mapped, if they have at least `LEAST_MAPPED` members together.

    Args:
        experiments: all requested experiments, finished or not, so that unfinished ones keep their places after a kill
        most: returns the largest number of members that are trained together with experiments like this one
    """
    alike: dict[str, list[Experiment]] = {}
    for one in experiments:
        key = common(one)
        if key is None:
            yield Joint([one])
        else:
            alike.setdefault(key, []).append(one)
    for all_alike in alike.values():
        if sum(len(one.members) for one in all_alike) < LEAST_MAPPED:
            yield from (Joint([one]) for one in all_alike)
            continue
        yield from _filled(all_alike, most(all_alike[0]))


def _filled(experiments: Sequence[Experiment], most: int) -> Iterator[Joint]:
    """Yield joints of experiments that can be joined, each with at most `most` members."""
    smallest, filling = min(len(one.members) for one in experiments), list[Joint]()
    for one in experiments:
        # first fit: put each experiment into the first open joint with space. This depends on the request alone, so
        # places do not change when the command runs again
        joint = next((each for each in filling if each.size + len(one.members) <= most), None)
        if joint is None:
            joint = Joint([], mapped=True)
            filling.append(joint)
        joint.experiments.append(one)
        if joint.size + smallest > most:
            filling.remove(joint)
            yield joint
    yield from filling


def common(experiment: Experiment) -> str | None:
    """Return a key that is equal for experiments that can be joined; None if this experiment cannot be joined.

    Experiments can be joined if they train tiny models of anchorlab without `start`, stop rule or a loss of their own,
    and differ only in learning rate, weight decay, clipping norm, and the per-member fields of `Members`.
    """
    recipe = experiment.recipe
    if experiment.start is not None or recipe.stop is not None or not is_tiny(experiment):
        return None
    if recipe.loss is not None or not isinstance(experiment.template, Model):  # torch may be unable to map a user's own
        return None
    spec = experiment.cell.spec
    # blank the numbers that may differ between members, and compare everything else as text
    optimiser = {**spec["recipe"]["optimiser"], "learning_rate": None, "weight_decay": None}
    rest = {**spec["recipe"], "optimiser": optimiser, "clip": None}
    return json.dumps([spec["task"], spec["model"], rest, experiment.members.hold, list(_numbers(experiment))])


def join(experiments: Sequence[Experiment], places: Sequence[Places]) -> Experiment:
    """Return one experiment with all members at their places; free places are filled with copies of the first member.

    The experiments must belong to one of the `joints`.
    """
    first, others = experiments[0], len(experiments) - 1
    # gather each per-member number of all experiments into one list, experiment after experiment
    columns = [_numbers(one) for one in experiments]
    together = {name: tuple(value for each in columns for value in each[name]) for name in columns[0]}
    # spread these lists over the places of the pass: a free place repeats the first member, so that the pass has its
    # fixed size, and with it the same bytes, even if other runs are finished already
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
    fitting: Callable[..., Trained] = fit,
) -> list[tuple[Row, ...]]:
    """Train experiments as one ensemble, each at its places and with its own keeper; return the rows of each.

    Args:
        experiments, places: as for `join`
        keepers: one keeper per experiment
        states: the state that each keeper has loaded, all of the same step; all None at the beginning
        fitting: `fit`, with the arguments that say where and how
    """
    keeper = JoinedKeeper(keepers, experiments, places, states)
    return divided(fitting(join(experiments, places), keeper=keeper, idle=keeper.idle).rows, keeper.shares)


def _numbers(experiment: Experiment) -> dict[str, tuple[Any, ...]]:
    """Return the values of every member by field of `Members`; fields without values are left out."""
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
    """A `Keeper` for joined experiments: hands each experiment's share to its own keeper. Args: as for `fit_joined`."""

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
        """Return the keepers' states as one state of the whole pass, or None at the beginning."""
        states = [state for state in self.states if state is not None]
        if not states:
            return None
        # stack the members of all states in the order of the experiments, then copy each to its place; free places
        # hold copies of the first member, which are not trained
        index = torch.tensor(_sources(self.shares, self.size))
        tensors = {name: torch.cat([state.tensors[name] for state in states])[index] for name in states[0].tensors}
        rows = (
            row._replace(member=row.member + share.start)
            for state, share in zip(states, self.shares, strict=True)
            for row in state.rows
        )
        return TrainingState(states[0].step, tensors, tuple(rows), frozenset(), states[0].execution)

    def keep(self, state: TrainingState) -> None:
        """Keep each experiment's share of a state."""
        for keeper, share, rows in zip(self.keepers, self.shares, divided(state.rows, self.shares), strict=True):
            tensors = {name: value[share.start : share.stop] for name, value in state.tensors.items()}
            keeper.keep(replace(state, tensors=tensors, rows=rows, resting=frozenset()))

    def checkpoint(self, step: int, weights: Mapping[str, Shaped[Tensor, "member ..."]]) -> None:
        """Keep each experiment's share of the weights at a step."""
        for keeper, share in zip(self.keepers, self.shares, strict=True):
            keeper.checkpoint(step, {name: value[share.start : share.stop] for name, value in weights.items()})


def _taken(experiments: Sequence[Experiment], places: Sequence[Places]) -> list[range]:
    return [range(place.first, place.first + len(one.members)) for one, place in zip(experiments, places, strict=True)]


def _sources(taken: Sequence[range], size: int) -> list[int]:
    """Return the index, counted over all experiments, of the member that fills each place; 0 for free places."""
    members = {place: source for source, place in enumerate(place for each in taken for place in each)}
    return [members.get(place, 0) for place in range(size)]


def divided(rows: Iterable[Row], shares: Sequence[range]) -> list[tuple[Row, ...]]:
    """Return the rows of each share of the members; the members of each share are numbered from 0."""
    owner = {member: index for index, share in enumerate(shares) for member in share}
    found: list[list[Row]] = [[] for _ in shares]
    for row in rows:
        index = owner[row.member]
        found[index].append(row._replace(member=row.member - shares[index].start))
    return [tuple(each) for each in found]
