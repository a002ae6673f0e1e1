"""Run experiments, here or elsewhere, unless the store already contains them."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, get_args

import torch

from anchorlab.engine.backend import Backend
from anchorlab.engine.folder import Folder
from anchorlab.engine.local import Local
from anchorlab.engine.pieces import Pieces, Plan
from anchorlab.errors import SpecError, StoreError
from anchorlab.progress import Status
from anchorlab.runs import RunDirectory, Store
from anchorlab.spec import unknown_name
from anchorlab.training import Experiment, TrainedRun, memory_per_member
from anchorlab.training.cost import estimated_seconds
from anchorlab.training.trainer import ExecutionName, check_device

On = Literal["local", "folder"]
"""Where runs are trained: on this machine, or by workers that share the folder of the store."""

_MEMORY_SHARE = 0.5  # of the machine's memory, for the members of one run
_PROCESSES_PAY_AFTER = 30.0  # seconds of work on one core; for less, starting processes takes longer than it saves


def run(
    experiments: Sequence[Experiment],
    store: Store | str | Path | None = None,
    workers: int | None = None,
    device: str = "cpu",
    execution: ExecutionName = "auto",
    report: Callable[[Status], None] | None = None,
    keep_every: float = 20.0,
    on: On = "local",
) -> list[TrainedRun]:
    """Train the experiments that the store does not contain yet.

    A run that was killed resumes from its last state, with its original chunks, and ends with the same bytes as one
    that was not. Results do not depend on the number of workers: they are equal in float64 and agree within
    rounding in float32.

    Args:
        experiments: what to train; one that is given twice is trained once
        store: where runs are kept, a store or its directory; `Store()` when None
        workers: the number of processes that share the members on a CPU. None chooses: this process alone for work of
            less than about half a minute, else one process per core. Each computes with one thread, or with more if
            there are fewer jobs than workers. On CUDA all members are trained together in this process.
        device: `cpu` or `cuda`
        execution: as for `fit`
        report: called with the status a few times per second
        keep_every: seconds between two kept states
        on: `local` trains on this machine; `folder` plans the runs and waits for workers, `anchorlab worker STORE`, on
            any machine that shares the store's folder. Then `workers` is into how many chunks the members of a run are
            divided, by default one each, and workers have devices of their own.

    Returns: the finished run of each experiment.

    Errors: `SpecError` for a device or an execution that does not exist; `StoreError` for a damaged store. A piece that
    fails is set aside, and all others are trained: then its own error if it is the only piece, else `IncompleteError`.
    """
    store = Store.of(store)
    if execution not in get_args(ExecutionName):
        raise unknown_name("execution", str(execution), get_args(ExecutionName), "execution")
    if on not in get_args(On):
        raise unknown_name("on", str(on), get_args(On), "backend")
    device = check_place(device, workers)
    if starts := [one.start for one in experiments if one.start is not None and one.cell not in store]:
        run(starts, store, workers, device, execution, report, keep_every, on)
    todo = {one.cell.address: one for one in experiments if one.cell not in store}
    for experiment in experiments:
        if experiment.cell.address not in todo:
            _check_finished(store.open(experiment.cell))
    backend, plans = (_local if on == "local" else _folder)(todo, workers, device, execution)
    if todo and report is not None and (label := backend.beginning(store.root)):
        report(Status(0, label=label))
    Pieces(store, todo, plans, device, keep_every, report).train(backend)
    return [TrainedRun(store.open(experiment.cell)) for experiment in experiments]


def plan(
    experiments: Sequence[Experiment], store: Store, chunks: int | None = None, execution: ExecutionName = "auto"
) -> int:
    """Plan the runs that the store lacks, for workers; return the number of their chunks.

    Args:
        experiments: what to train, each after the one that it starts from
        store: where runs are kept
        chunks: into how many chunks the members of a run are divided, by default one each
        execution: as for `fit`
    """
    asked = [two for one in experiments for two in (one.start, one) if two is not None]
    todo = {one.cell.address: one for one in asked if one.cell not in store}
    _, plans = _folder(todo, chunks, "cpu", execution)
    return Pieces(store, todo, plans, "cpu", 0.0, None).plan()


Plans = dict[str, Plan]


def _local(
    todo: Mapping[str, Experiment], workers: int | None, device: str, execution: ExecutionName
) -> tuple[Backend, Plans]:
    """Return the processes of this machine, one for each of several devices, and the plans that suit them."""
    devices = None
    if device == "cuda" and torch.cuda.device_count() > 1:
        devices = tuple(f"cuda:{index}" for index in range(torch.cuda.device_count()))
    workers = workers or (len(devices) if devices else _choose_workers(list(todo.values()), device))
    divisions = {address: _divide(one, workers, device) for address, one in todo.items()}
    count = sum(map(len, divisions.values()))
    plans = {address: _plan(division, workers, count, device, execution) for address, division in divisions.items()}
    importable = all(_importable(one) for one in todo.values())
    return Local(min(workers, count) if importable else 1, devices), plans


def _folder(
    todo: Mapping[str, Experiment], chunks: int | None, device: str, execution: ExecutionName
) -> tuple[Backend, Plans]:
    """Return the workers that share the store, and plans for any number of them, each with one thread."""
    divisions = {address: _divide(one, chunks or len(one.members), "cpu") for address, one in todo.items()}
    return Folder(), {address: Plan(division, 1, execution) for address, division in divisions.items()}


def _check_finished(directory: RunDirectory) -> None:
    """Raise `StoreError` for a damaged run, and remove what is left of a process killed just after finishing it."""
    if problems := directory.problems():
        raise StoreError(problems[0])
    if directory.state_path.exists():
        with suppress(StoreError), directory:  # another process may be removing it, or this user may not
            pass


def check_place(device: str, workers: int | None = None) -> str:
    """Return the device's name, `cpu` for any name of it. Errors: `SpecError` for what cannot train."""
    found = "cpu" if check_device(device).type == "cpu" else device
    if workers is not None and workers < 1:
        raise SpecError("workers", f"{workers} is not a number of processes", "give 1 or more")
    return found


def _choose_workers(experiments: Sequence[Experiment], device: str) -> int:
    """Return the number of processes that trains the experiments fastest: one, or one per core."""
    if device != "cpu" or sum(map(estimated_seconds, experiments)) < _PROCESSES_PAY_AFTER:
        return 1
    return cores()


def cores() -> int:
    """Return the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _divide(experiment: Experiment, workers: int, device: str) -> list[list[int]]:
    """Divide members into consecutive chunks: enough to occupy the workers, each small enough for the memory."""
    count = len(experiment.members)
    if device == "cpu":
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // workers
    else:
        memory = torch.cuda.get_device_properties(device).total_memory
    fitting = max(1, int(_MEMORY_SHARE * memory) // memory_per_member(experiment))
    chunks = max(min(workers, count), -(-count // fitting))
    ends = [count * (index + 1) // chunks for index in range(chunks)]
    return [list(range(start, end)) for start, end in zip([0, *ends], ends, strict=False)]


def _plan(division: list[list[int]], workers: int, jobs: int, device: str, execution: ExecutionName) -> Plan:
    """Return the plan of a run that is divided so; threads are for cores that would idle."""
    threads = max(1, workers // jobs) if device == "cpu" else torch.get_num_threads()
    return Plan(division, threads, execution)


def _importable(experiment: Experiment) -> bool:
    """Return whether another process can import the task and model; not if defined in a notebook or at a prompt."""
    parts = (experiment.task, experiment.model)
    return hasattr(sys.modules["__main__"], "__file__") or all(type(one).__module__ != "__main__" for one in parts)
