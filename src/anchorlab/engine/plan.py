"""Plan how experiments are trained: which ones together, in which chunks, with how many threads and processes."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from pydantic import TypeAdapter

from anchorlab.engine.modules import defining_modules, script_of
from anchorlab.errors import SpecError
from anchorlab.memory import memory
from anchorlab.runs import Run, Store
from anchorlab.runs.atomic_files import damaged
from anchorlab.runs.environment import cores
from anchorlab.training import Experiment, check_memory, memory_per_member
from anchorlab.training.cost import LEAST_MAPPED, MOST_TOGETHER, estimated_seconds
from anchorlab.training.joined import Joint, Places, joints
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
        try:
            plan = TypeAdapter(cls).validate_json(json.dumps(run.recorded_plan()), strict=True)
        except ValueError:
            raise _no_plan(run) from None
        divided = all(plan.chunks) and [one for chunk in plan.chunks for one in chunk] == list(range(members))
        if not divided or not 0 < plan.threads <= _MOST_THREADS:
            raise _no_plan(run)
        if (places := plan.places) is not None:
            alone = (len(plan.chunks), plan.threads, plan.execution) == (1, 1, "mapped")
            if not alone or not 0 <= places.first <= places.of - members <= MOST_TOGETHER - members:
                raise _no_plan(run)
        return plan


def _no_plan(run: Run) -> Exception:
    return damaged(run.plan_path, "damaged: is no plan of this run", run.address)


class Plans(NamedTuple):
    """How experiments are trained.

    Fields
        of: the plan of each experiment, by address
        together: the addresses of experiments that are trained as one ensemble, for each ensemble
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

    Which experiments are trained together depends neither on the number of workers nor on which are finished: both can
    change before a killed run is resumed, and a run's last bits depend on its places.

    Args:
        todo: the experiments to train, by address
        asked: all requested experiments, including finished ones
        workers, device, execution: as for `run`
        here: whether this machine trains. Elsewhere each chunk has one thread, and each member is by default a chunk.
    """
    if not here:
        device = "cpu"
    elif workers is None:
        workers = len(devices_of(device)) if device != "cpu" else choose_workers(todo.values())
    if device != "cpu" or execution == "member":
        found = [Joint([one]) for one in todo.values()]
    else:
        every = {one.cell.address: one for one in asked}
        alike = joints(every.values(), lambda one: min(MOST_TOGETHER, _fitting(one, cores(), device)))
        found = [joint for joint in alike if not todo.keys().isdisjoint(joint.addresses)]
    chunks = {one.cell.address: _chunks(one, joint, workers, device) for joint in found for one in joint.experiments}
    jobs = sum(1 if len(joint.experiments) > 1 else len(chunks[joint.addresses[0]]) for joint in found)
    threads = 1
    if here:  # on a CPU, more than one thread only if cores would idle
        threads = max(1, (workers or 1) // max(1, jobs)) if device == "cpu" else torch.get_num_threads()
    plans = {
        address: Plan(chunks[address], 1 if joint.mapped else threads, "mapped" if joint.mapped else execution, places)
        for joint in found
        for address, places in zip(joint.addresses, joint.places, strict=True)
        if address in todo
    }
    processes = min(workers or 1, jobs)
    if "__main__" in defining_modules(todo.values()) and script_of(todo.values()) is None:
        processes = min(1, jobs)  # no other process can import what is defined in a notebook or at a prompt
    return Plans(plans, [[one for one in joint.addresses if one in plans] for joint in found], processes)


def with_starts(experiments: Sequence[Experiment], store: Store) -> list[Sequence[Experiment]]:
    """Return stages to train in turn: the experiments last; before each stage, what its unfinished ones start from."""
    starts = [one.start for one in experiments if one.start is not None and one.cell not in store]
    return [*(with_starts(starts, store) if starts else []), experiments]


def devices_of(device: str) -> tuple[str, ...]:
    """Return the devices over which processes are spread: every GPU for `cuda`, otherwise the device itself."""
    if device == "cuda" and torch.cuda.device_count() > 1:
        return tuple(f"cuda:{index}" for index in range(torch.cuda.device_count()))
    return (device,)


def checked_device(device: str, workers: int | None = None, here: bool = True) -> str:
    """Return the device's name, `cpu` for any CPU.

    Args:
        device, workers: as for `run`
        here: whether this machine trains; elsewhere there may be devices that it lacks

    Errors: `SpecError` for a device that is missing or cannot train, and for `workers` below 1 or not whole.
    """
    if workers is not None and (not isinstance(workers, int) or workers < 1):
        raise SpecError("workers", f"{workers!r:.60} is not a number of processes", "give 1 or more")
    if not here and device.partition(":")[0] == "cuda":
        return device
    return "cpu" if check_device(device).type == "cpu" else device


def check_fits(experiments: Iterable[Experiment], device: str) -> None:
    """Raise `SpecError` if a single member of an experiment does not fit into the memory of a device."""
    for one in experiments:
        check_memory(one, _memory_of(device))


def _chunks(experiment: Experiment, joint: Joint, workers: int | None, device: str) -> list[list[int]]:
    """Return the members of each chunk: all if trained with others, else a share for each worker, or one if None."""
    count = len(experiment.members)
    if len(joint.experiments) > 1:
        return [list(range(count))]
    wanted = workers or count  # mapped members stay together in chunks of at least `LEAST_MAPPED`
    return _divide(experiment, min(wanted, max(1, count // LEAST_MAPPED)) if joint.mapped else wanted, device)


def _divide(experiment: Experiment, workers: int, device: str) -> list[list[int]]:
    """Divide members into consecutive chunks: enough to occupy all workers, each small enough for the memory."""
    count = len(experiment.members)
    chunks = max(min(workers, count), -(-count // _fitting(experiment, workers, device)))
    ends = [count * (index + 1) // chunks for index in range(chunks)]
    return [list(range(start, end)) for start, end in zip([0, *ends], ends, strict=False)]


def choose_workers(experiments: Iterable[Experiment]) -> int:
    """Return the number of processes that trains fastest on a CPU: one for little work, else one per core."""
    return 1 if sum(map(estimated_seconds, experiments)) < _PROCESSES_PAY_AFTER else cores()


def _fitting(experiment: Experiment, workers: int, device: str) -> int:
    share = _memory_of(device) // (workers if device == "cpu" else 1)
    return max(1, int(_MEMORY_SHARE * share) // memory_per_member(experiment))


def _memory_of(device: str) -> int:
    return memory() if device == "cpu" else torch.cuda.get_device_properties(device).total_memory
