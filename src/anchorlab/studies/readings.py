"""What a study reads of its runs: each quantity is declared once, and read when a claim or a figure first asks for it.

>>> class Seen(Reading):
...     fitted = crossing("train", "loss", 0.5, falling=True)
...     final = at_end("test", "accuracy")
...
...     @reading
...     def gain(self) -> Tensor:
...         return self.final["wide"] - self.final["narrow"]

`seen.final["wide"]` holds the final accuracy `[member]` of the run with this label.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from inspect import unwrap
from typing import Any, Generic, TypeVar, overload

import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.lens import first_crossing
from anchorlab.spec import unknown_name
from anchorlab.studies import kit
from anchorlab.tasks import Batch
from anchorlab.training import Experiment, TrainedRun

Value = TypeVar("Value")
Evaluated = tuple[Iterable[str], Iterable[str]]
"""Names of splits and of metrics."""

reading = cached_property
"""Decorator of a method of a `Reading`, or wrapper of a function that takes one; the result is computed once."""


class Reading:
    """The base class of what a study reads from its runs.

    Args:
        runs: the finished runs by the label that the study's `trains` gives them; empty if it trains nothing
        setting: the setting of the profile

    A study that reads no runs may set `seeds`, the seeds of its own data in words, `model`, the pretrained model in
    words, and `untrained`, the same readings of an untrained model.
    """

    setting: Any
    seeds: str | None = None
    model: str | None = None
    untrained: Any = None

    def __init__(self, runs: Mapping[Any, TrainedRun], setting: Any = None) -> None:
        self.runs = runs
        self.setting = setting

    @property
    def seen(self) -> Any:
        """The argument of the claims: the reading itself."""
        return self

    @property
    def first(self) -> TrainedRun:
        """The first run."""
        return self.runs[next(iter(self.runs))]

    @property
    def last(self) -> TrainedRun:
        """The last run."""
        return self.runs[list(self.runs)[-1]]


class ByRun(Mapping[Any, Value]):
    """A quantity of every run by the run's label; a run is read when its label is asked for."""

    def __init__(self, read: Callable[[TrainedRun], Value], runs: Mapping[Any, TrainedRun]) -> None:
        self._read, self._runs = read, runs
        self._known: dict[Any, Value] = {}

    def __getitem__(self, label: Any) -> Value:
        if label not in self._known:
            self._known[label] = self._read(self._runs[label])
        return self._known[label]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)


class Quantity(Generic[Value]):
    """A quantity of each run, declared in the body of a `Reading`, whose instances have its values as a `ByRun`.

    Args:
        read: computes it for one run
        heading: its name in tables; by default the name it is declared by
        evaluated: the splits and metrics that it reads, which some experiment has to evaluate
    """

    def __init__(self, read: Callable[[TrainedRun], Value], heading: str = "", evaluated: Evaluated = ((), ())) -> None:
        self.read, self.heading, self.evaluated, self.name = read, heading, evaluated, ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name, self.heading = name, self.heading or name.replace("_", " ")

    def of(self, seen: Reading) -> ByRun[Value]:
        """Return the values of this quantity for the runs of a reading."""
        found: ByRun[Value] = ByRun(self.read, seen.runs)
        if self.name:  # else it is not declared, and has no place of its own
            found = seen.__dict__.setdefault(self.name, found)
        return found

    @overload
    def __get__(self, seen: None, owner: type) -> "Quantity[Value]": ...
    @overload
    def __get__(self, seen: Reading, owner: type) -> ByRun[Value]: ...
    def __get__(self, seen: Reading | None, owner: type) -> "Quantity[Value] | ByRun[Value]":
        return self if seen is None else self.of(seen)


def at_end(
    split: str, metric: str, edit: str = "none", group: str = "all", heading: str = ""
) -> Quantity[Float[Tensor, "member"]]:
    """Declare each member's value of a metric at the end of training. Arguments as in `anchorlab.studies.at_end`."""
    return Quantity(lambda run: kit.at_end(run, split, metric, edit, group), heading, ([split], [metric]))


def of_first(read: Callable[[TrainedRun], Value]) -> cached_property[Value]:
    """Declare what `read` returns for the first run, for a study of one run."""
    return reading(lambda seen: read(seen.first))


class first_at_end(cached_property[Float[Tensor, "member"]]):  # noqa: N801 - used as the functions here
    """Each member's value of a metric at the end of the first run. Arguments as in `anchorlab.studies.at_end`."""

    def __init__(self, split: str, metric: str) -> None:
        super().__init__(lambda seen: kit.at_end(seen.first, split, metric))
        self.evaluated: Evaluated = [split], [metric]


def along(
    split: str, metric: str, edit: str = "none", group: str = "all", heading: str = ""
) -> Quantity[Float[Tensor, "member step"]]:
    """Declare each member's values of a metric at every evaluation. Arguments as in `anchorlab.studies.at_end`."""
    return Quantity(lambda run: kit.along(run, split, metric, edit, group)[1], heading, ([split], [metric]))


def sampled(split: str, n: int) -> cached_property[Batch]:
    """Declare `n` sequences of a split of the first run's task, the same each time."""
    return of_first(lambda run: run.experiment.task.sample(split, n, seed=0))


def crossing(
    split: str, metric: str, level: float | Callable[[TrainedRun], float], falling: bool = False, heading: str = ""
) -> Quantity[Float[Tensor, "member"]]:
    """Declare the optimiser step at which a metric first passes a level; infinite for a member that never does.

    The level may depend on the run. With `falling`, the metric passes it from above. Between two evaluations the metric
    is taken to change linearly. `split` and `metric` are as in `anchorlab.studies.at_end`.
    """

    def read(run: TrainedRun) -> Float[Tensor, "member"]:
        at = level(run) if callable(level) else level
        return first_crossing(*kit.along(run, split, metric), at, falling).nan_to_num(nan=torch.inf)

    return Quantity(read, heading, ([split], [metric]))


def check_names(reads: Any, draws: Iterable[Any], experiments: Sequence[Experiment]) -> None:
    """Raise `SpecError` if `reads`, a `Reading`, or a drawing reads a split or metric that no experiment evaluates.

    A function made by `functools.wraps` is checked as the function that it wraps.
    """
    own = unwrap(reads)
    parts = {f"reads.{name}": getattr(own, name) for name in dir(own)}
    for at, part in (parts | {f"draws.{index}": unwrap(one) for index, one in enumerate(draws)}).items():
        for kind, names in zip(("splits", "metrics"), getattr(part, "evaluated", ()), strict=False):
            for name in names:
                if not any(name in getattr(one, kind) for one in experiments):
                    known = {each for one in experiments for each in getattr(one, kind)}
                    raise unknown_name(at, name, known, kind.removesuffix("s"))
