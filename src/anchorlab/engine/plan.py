"""Plan how experiments are trained: which ones together, in which chunks, with how many threads and processes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, get_args

import torch

from anchorlab.engine.modules import defining_modules, script_of
from anchorlab.errors import SpecError
from anchorlab.memory import memory
from anchorlab.runs import Run, Store
from anchorlab.runs.atomic_files import damaged
from anchorlab.runs.environment import cores
from anchorlab.training import Experiment, check_memory, memory_per_member
from anchorlab.training.cost import LEAST_MAPPED, MOST_TOGETHER, estimated_seconds
from anchorlab.training.joined import Group, Places, groups
from anchorlab.training.trainer import ExecutionName, check_device

_MEMORY_SHARE = 0.5  # the part of the memory that members may take
_PROCESSES_PAY_AFTER = 30.0  # seconds of work on one core; below, starting processes costs more time than it saves
_MOST_THREADS = 4096


@dataclass
class Plan:
    """How a run is trained, as recorded with the run: everything that can change the last bits of its results.

    Fields
        chunks: the members of each chunk
        threads: the number of threads for each chunk
        execution: how the members are executed, as for `fit`
        places: the members' places in a shared pass, if the run can be trained with other runs; else None
    """

    chunks: list[list[int]]
    threads: int
    execution: ExecutionName
    places: Places | None = None

    @classmethod
    def read(cls, run: Run, members: int) -> "Plan":
        """Return the plan that an unfinished run of `members` members has recorded. Errors: `StoreError`."""
        recorded = run.recorded_plan()
        try:
            plan = cls(**recorded)
            if plan.places is not None:
                plan.places = Places(*plan.places)  # a list in the file
            if plan._is_of(members):
                return plan
        except (TypeError, ValueError):
            pass
        raise damaged(run.plan_path, "damaged: is no plan of this run", run.address)

    def _is_of(self, members: int) -> bool:
        numbers = [member for chunk in self.chunks for member in chunk]
        if not all(type(one) is int for one in (*numbers, self.threads, *(self.places or ()))):
            return False
        if numbers != list(range(members)) or not all(self.chunks) or not 0 < self.threads <= _MOST_THREADS:
            return False
        if self.execution not in get_args(ExecutionName):
            return False
        if self.places is None:
            return True
        joined = len(self.chunks) == 1 and self.execution == "mapped" and self.threads == 1
        return joined and 0 <= self.places.first <= self.places.of - members <= MOST_TOGETHER - members


class Plans(NamedTuple):
    """How experiments are trained.

    Fields
        of: the plan of each experiment, by address
        together: the addresses in groups; the experiments of a group are trained as one ensemble
        processes: the number of processes of this machine
    """

    of: dict[str, Plan]
    together: list[list[str]]
    processes: int


def planned(
    todo: Mapping[str, Experiment],
    asked: Iterable[Experiment],
    workers: int | None,
    device: str,
    execution: ExecutionName,
    here: bool = True,
) -> Plans:
    """Plan the training of experiments on this machine or elsewhere.

    Args:
        todo: the experiments to train, by address
        asked: all requested experiments, including finished ones, since groups must not depend on what is finished
        workers, device, execution: as for `run`
        here: whether this machine trains. Elsewhere each chunk has one thread, and each member is by default a chunk.
    """
    if not here:
        device = "cpu"
    elif workers is None:
        workers = len(devices_of(device)) if device != "cpu" else _choose_workers(todo.values())
    found = _groups(todo, device, execution, asked)
    chunks = {address: division for group in found for address, division in _divisions(group, workers, device)}
    jobs = sum(1 if len(one.experiments) > 1 else len(chunks[_addresses(one)[0]]) for one in found)
    threads = 1
    if here:  # on a CPU, more than one thread only if cores would idle
        threads = max(1, (workers or 1) // max(1, jobs)) if device == "cpu" else torch.get_num_threads()
    plans = {
        address: Plan(chunks[address], 1 if group.mapped else threads, "mapped" if group.mapped else execution, places)
        for group in found
        for address, places in zip(_addresses(group), group.places, strict=True)
        if address in todo
    }
    processes = min(workers or 1, jobs)
    if "__main__" in defining_modules(todo.values()) and script_of(todo.values()) is None:
        processes = min(1, jobs)  # no other process can import what is defined in a notebook or at a prompt
    return Plans(plans, [[one for one in _addresses(group) if one in plans] for group in found], processes)


def with_starts(experiments: Sequence[Experiment], store: Store) -> list[Sequence[Experiment]]:
    """Return the experiments as the last of several stages, after the stages of what unfinished ones start from."""
    starts = [one.start for one in experiments if one.start is not None and one.cell not in store]
    return [*(with_starts(starts, store) if starts else []), experiments]


def devices_of(device: str) -> tuple[str, ...]:
    """Return the devices over which processes are spread: every GPU for `cuda`, otherwise the device itself."""
    if device == "cuda" and torch.cuda.device_count() > 1:
        return tuple(f"cuda:{index}" for index in range(torch.cuda.device_count()))
    return (device,)


def check_place(device: str, workers: int | None = None, here: bool = True) -> str:
    """Return the device's name, `cpu` for any CPU.

    Args:
        device, workers: as for `run`
        here: whether this machine trains; elsewhere there may be devices that it lacks

    Errors: `SpecError` for a device that is missing or cannot train, and for `workers` below 1.
    """
    if workers is not None and workers < 1:
        raise SpecError("workers", f"{workers} is not a number of processes", "give 1 or more")
    if not here and device.partition(":")[0] == "cuda":
        return device
    return "cpu" if check_device(device).type == "cpu" else device


def check_fits(experiments: Iterable[Experiment], device: str) -> None:
    """Raise `SpecError` for an experiment of which one member does not fit into the memory of a device."""
    for one in experiments:
        check_memory(one, _memory_of(device))


def _groups(
    todo: Mapping[str, Experiment], device: str, execution: ExecutionName, asked: Iterable[Experiment]
) -> list[Group]:
    """Return the groups of requested experiments that are trained together, without groups that are finished.

    A group depends neither on the number of workers nor on which experiments are finished: both can change before a
    killed run is resumed, and a run's last bits depend on its place in its group.
    """
    if device != "cpu" or execution == "member":
        return [Group([one]) for one in todo.values()]
    every = {one.cell.address: one for one in asked}
    found = groups(every.values(), lambda one: min(MOST_TOGETHER, _fitting(one, cores(), device)))
    return [group for group in found if not todo.keys().isdisjoint(_addresses(group))]


def _addresses(group: Group) -> list[str]:
    return [one.cell.address for one in group.experiments]


def _divisions(group: Group, chunks: int | None, device: str) -> list[tuple[str, list[list[int]]]]:
    """Return the address of each experiment of a group, with the members of each of its chunks.

    An experiment that is trained together with others is one chunk. Other experiments are cut into `chunks` chunks, or
    one per member if None; mapped members stay together in chunks of at least `LEAST_MAPPED`, if there are as many.
    """
    first, *others = group.experiments
    if others:
        return [(one.cell.address, [list(range(len(one.members)))]) for one in group.experiments]
    count = len(first.members)
    wanted = chunks or count
    if group.mapped:
        wanted = min(wanted, max(1, count // LEAST_MAPPED))
    return [(first.cell.address, _divide(first, wanted, device))]


def _divide(experiment: Experiment, workers: int, device: str) -> list[list[int]]:
    """Divide members into consecutive chunks: enough to occupy all workers, each small enough for the memory."""
    count = len(experiment.members)
    chunks = max(min(workers, count), -(-count // _fitting(experiment, workers, device)))
    ends = [count * (index + 1) // chunks for index in range(chunks)]
    return [list(range(start, end)) for start, end in zip([0, *ends], ends, strict=False)]


def _choose_workers(experiments: Iterable[Experiment]) -> int:
    """Return the number of processes that trains fastest on a CPU: one for little work, else one per core."""
    return 1 if sum(map(estimated_seconds, experiments)) < _PROCESSES_PAY_AFTER else cores()


def _fitting(experiment: Experiment, workers: int, device: str) -> int:
    """Return how many members fit into a worker's share of the memory, at least one."""
    share = _memory_of(device) // (workers if device == "cpu" else 1)
    return max(1, int(_MEMORY_SHARE * share) // memory_per_member(experiment))


def _memory_of(device: str) -> int:
    return memory() if device == "cpu" else torch.cuda.get_device_properties(device).total_memory
