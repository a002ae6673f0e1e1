"""Forecast the cost of training experiments: work left, memory, disk, and time from a few measured steps."""

import heapq
import resource
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from anchorlab.engine.plan import check_fits, checked_device, planned, with_starts
from anchorlab.models.cpu import with_threads
from anchorlab.progress import Report, Status
from anchorlab.runs import Store
from anchorlab.training import Experiment, memory_per_member
from anchorlab.training.cost import checkpoint_bytes, state_bytes
from anchorlab.training.joined import join
from anchorlab.training.step_timing import Pace, measure_pace, pace_key
from anchorlab.training.trainer import ExecutionName

_SECONDS_TO_MEASURE = 8.0  # for all shapes together
_MOST_PER_PACE = 1.0  # seconds for one shape


@dataclass(frozen=True)
class ForecastCell:
    """One experiment of a forecast.

    Fields
        experiment: the experiment that would be trained
        finished: whether the store has its finished run
        begun: whether the store has an unfinished run of it; the work already done is not subtracted
        seconds: the time for all its members in one process; 0 if finished
    """

    experiment: Experiment
    finished: bool
    begun: bool
    seconds: float

    @property
    def member_steps(self) -> int:
        """The optimiser steps of all members together; 0 for an untrained experiment."""
        return self.experiment.member_steps if self.experiment.trained else 0


@dataclass(frozen=True)
class Forecast:
    """The estimated cost of training experiments on this machine.

    Fields
        cells: every experiment once, in the order in which they are needed
        workers: the number of processes
        seconds: an estimate, from measured steps, of the time until the last process ends
        memory: the peak of all processes together, in bytes; on CUDA, of the device
        disk: bytes of the checkpoints that would be written
        states: bytes that the newest states take at most until their runs are finished
        measured_steps: the number of measured steps, over all shapes
        paces: the number of distinct shapes that were measured
        may_stop: whether a stop rule may end some members earlier
    """

    cells: tuple[ForecastCell, ...]
    workers: int
    seconds: float
    memory: int
    disk: int
    states: int
    measured_steps: int
    paces: int
    may_stop: bool

    @cached_property
    def left(self) -> tuple[ForecastCell, ...]:
        """The cells that would be trained."""
        return tuple(cell for cell in self.cells if not cell.finished)


def forecast(
    experiments: Sequence[Experiment],
    store: Store | str | Path | None = None,
    workers: int | None = None,
    device: str = "cpu",
    execution: ExecutionName = "auto",
    report: Report | None = None,
) -> Forecast:
    """Forecast what `run` with the same arguments would train, and its cost. Writes nothing.

    A few steps of every distinct shape are trained, after a warm-up, and discarded. Other load on the machine, during
    the measurement or the training, changes the time.

    Errors: `SpecError` for a device that does not exist, and for workers below 1.
    """
    store = Store.of(store)
    device = checked_device(device, workers)
    every = {one.cell.address: one for stage in with_starts(experiments, store) for one in stage}
    todo = {address: one for address, one in every.items() if one.cell not in store}
    check_fits(todo.values(), device)
    plans = planned(todo, every.values(), workers, device, execution)
    trained: dict[str, Experiment] = {}  # the experiment that each is trained in: itself, or the joined one
    executions: dict[str, ExecutionName] = {}  # of each shape
    for addresses in plans.together:
        places = [one for address in addresses if (one := plans.of[address].places) is not None]
        joined = join([todo[address] for address in addresses], places) if places else todo[addresses[0]]
        trained |= dict.fromkeys(addresses, joined)
        executions[pace_key(joined)] = "mapped" if places else execution
    shapes: dict[str, Experiment] = {}  # a trained experiment represents its shape if there is one
    for joined in sorted(trained.values(), key=lambda one: not one.trained):
        shapes.setdefault(pace_key(joined), joined)
    paces, seconds = dict[str, Pace](), min(_MOST_PER_PACE, _SECONDS_TO_MEASURE / max(1, len(shapes)))
    with with_threads(max((plan.threads for plan in plans.of.values()), default=1)):
        for index, (key, joined) in enumerate(shapes.items()):
            if report is not None:
                report(Status(len(shapes), index, f"measuring {joined.cell.label}", len(shapes), index))
            paces[key] = measure_pace(joined, device, executions[key], seconds)
    each = {address: paces[pace_key(trained[address])].seconds(one) for address, one in todo.items()}
    chunks = [  # members, or places in a pass
        (len(trained[first].members) if plans.of[first].places else len(chunk), first)
        for first, *_ in plans.together
        for chunk in plans.of[first].chunks
    ]
    processes = max(1, plans.processes)
    memory, states = (
        sum(sorted((count * of(todo[address]) for count, address in chunks), reverse=True)[:processes])
        for of in (memory_per_member, state_bytes)
    )
    base = _memory_of_this_process() if device == "cpu" else 0
    return Forecast(
        cells=tuple(
            ForecastCell(
                one,
                finished=address not in todo,
                begun=address in todo and (store.root / address).is_dir(),
                seconds=each.get(address, 0.0) * len(one.members),
            )
            for address, one in every.items()
        ),
        workers=processes,
        seconds=_until_the_last((count * each[address] for count, address in chunks), processes),
        memory=memory + base * processes if todo else 0,
        disk=sum(map(checkpoint_bytes, todo.values())),
        states=2 * states,  # a state is removed once the next one is written
        measured_steps=sum(pace.steps for pace in paces.values()),
        paces=len(paces),
        may_stop=any(one.recipe.stop is not None for one in todo.values()),
    )


def _until_the_last(seconds: Iterable[float], processes: int) -> float:
    """Return the time until the last process ends, if each free process takes the longest job left."""
    busy = [0.0] * processes
    for one in sorted(seconds, reverse=True):
        heapq.heapreplace(busy, busy[0] + one)
    return max(busy)


def _memory_of_this_process() -> int:
    found = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # about what a worker takes before it trains
    return found if sys.platform == "darwin" else found * 1024
