"""Plan how a set of experiments is trained: number of processes, members of each chunk, number of threads."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import torch

from anchorlab.engine.local import Local
from anchorlab.engine.modules import defining_modules, script_of
from anchorlab.engine.plan import Plan, Plans
from anchorlab.errors import SpecError
from anchorlab.memory import memory
from anchorlab.runs.environment import cores
from anchorlab.training import Experiment, check_memory, memory_per_member
from anchorlab.training.cost import LEAST_MAPPED, MOST_TOGETHER, estimated_seconds
from anchorlab.training.joined import Group, groups
from anchorlab.training.trainer import ExecutionName, check_device

_MEMORY_SHARE = 0.5  # the part of the memory that members may take
_PROCESSES_PAY_AFTER = 30.0  # seconds of work on one core; below, starting processes costs more time than it saves


def local(
    todo: Mapping[str, Experiment],
    workers: int | None,
    device: str,
    execution: ExecutionName,
    asked: Iterable[Experiment],
) -> tuple[Local, Plans]:
    """Return the processes of this machine, by default one per device if there are several, and plans that suit them.

    `asked` are all requested experiments, including finished ones, since groups must not depend on what is finished.
    """
    devices = None
    if device == "cuda" and torch.cuda.device_count() > 1:
        devices = tuple(f"cuda:{index}" for index in range(torch.cuda.device_count()))
    processes = workers or (len(devices) if devices else _choose_workers(list(todo.values()), device))
    found = _groups(todo, device, execution, asked)
    divisions = _divisions(found, processes, device)
    count = sum(1 if len(one.experiments) > 1 else len(divisions[_addresses(one)[0]]) for one in found)

    def plan(division: list[list[int]]) -> Plan:
        return _plan(division, processes, count, device, execution)

    if "__main__" in defining_modules(todo.values()) and script_of(todo.values()) is None:
        processes = 1  # no other process can import what is defined in a notebook or at a prompt
    return Local(min(processes, count), devices), _plans(todo, found, divisions, plan)


def for_others(
    todo: Mapping[str, Experiment],
    chunks: int | None,
    execution: ExecutionName,
    asked: Iterable[Experiment],
) -> Plans:
    """Return plans for processes elsewhere, with one thread each; by default each member is a chunk."""
    found = _groups(todo, "cpu", execution, asked)
    return _plans(todo, found, _divisions(found, chunks, "cpu"), lambda division: Plan(division, 1, execution))


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


def _divisions(found: Iterable[Group], chunks: int | None, device: str) -> dict[str, list[list[int]]]:
    """Return the members of each chunk, for each experiment by address.

    An experiment that is trained together with others is one chunk. Other experiments are cut into `chunks` chunks, or
    one per member if None; mapped members stay together in chunks of at least `LEAST_MAPPED`, if there are as many.
    """
    divisions: dict[str, list[list[int]]] = {}
    for group in found:
        first, *others = group.experiments
        if others:
            divisions |= {one.cell.address: [list(range(len(one.members)))] for one in group.experiments}
            continue
        count = len(first.members)
        wanted = chunks or count
        if group.mapped:
            wanted = min(wanted, max(1, count // LEAST_MAPPED))
        divisions[first.cell.address] = _divide(first, wanted, device)
    return divisions


def _plans(
    todo: Mapping[str, Experiment],
    found: Iterable[Group],
    divisions: Mapping[str, list[list[int]]],
    plan: Callable[[list[list[int]]], Plan],
) -> Plans:
    """Return the plans of all experiments in `todo`: for mapped groups with one thread, for others from `plan`."""
    of = {
        address: Plan(divisions[address], 1, "mapped", places) if group.mapped else plan(divisions[address])
        for group in found
        for address, places in zip(_addresses(group), group.places, strict=True)
        if address in todo
    }
    return Plans(of, [[address for address in _addresses(group) if address in of] for group in found])


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


def _choose_workers(experiments: Sequence[Experiment], device: str) -> int:
    """Return the number of processes that trains the experiments fastest: one for little work, else one per core."""
    if device != "cpu" or sum(map(estimated_seconds, experiments)) < _PROCESSES_PAY_AFTER:
        return 1
    return cores()


def _divide(experiment: Experiment, workers: int, device: str) -> list[list[int]]:
    """Divide members into consecutive chunks: enough to occupy all workers, each small enough for the memory."""
    count = len(experiment.members)
    chunks = max(min(workers, count), -(-count // _fitting(experiment, workers, device)))
    ends = [count * (index + 1) // chunks for index in range(chunks)]
    return [list(range(start, end)) for start, end in zip([0, *ends], ends, strict=False)]


def _fitting(experiment: Experiment, workers: int, device: str) -> int:
    """Return how many members fit into a worker's share of the memory, at least one."""
    share = _memory_of(device) // (workers if device == "cpu" else 1)
    return max(1, int(_MEMORY_SHARE * share) // memory_per_member(experiment))


def _memory_of(device: str) -> int:
    return memory() if device == "cpu" else torch.cuda.get_device_properties(device).total_memory


def _plan(division: list[list[int]], workers: int, jobs: int, device: str, execution: ExecutionName) -> Plan:
    """Return the plan of a run with this division; on a CPU, more than one thread only if cores would idle."""
    threads = max(1, workers // jobs) if device == "cpu" else torch.get_num_threads()
    return Plan(division, threads, execution)
