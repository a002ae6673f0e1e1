"""Run experiments, here or elsewhere, unless the store already contains them."""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import get_args

import torch

from anchorlab.engine.local import Local
from anchorlab.engine.pieces import Pieces, Plan
from anchorlab.errors import SpecError, StoreError
from anchorlab.progress import Status
from anchorlab.runs import Store
from anchorlab.spec import unknown_name
from anchorlab.training import Experiment, TrainedRun, memory_per_member
from anchorlab.training.cost import estimated_seconds
from anchorlab.training.trainer import ExecutionName, check_device

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

    Returns: the finished run of each experiment.

    Errors: `SpecError` for a device or an execution that does not exist; `StoreError` for a damaged store. A piece that
    fails is set aside, and all others are trained: then its own error if it is the only piece, else `IncompleteError`.
    """
    store = Store.of(store)
    if execution not in get_args(ExecutionName):
        raise unknown_name("execution", str(execution), get_args(ExecutionName), "execution")
    if starts := [one.start for one in experiments if one.start is not None and one.cell not in store]:
        run(starts, store, workers, device, execution, report, keep_every)
    device = check_place(device, workers)
    todo = {one.cell.address: one for one in experiments if one.cell not in store}
    for experiment in experiments:
        if experiment.cell.address not in todo and (problems := store.open(experiment.cell).problems()):
            raise StoreError(problems[0])
    workers = workers or _choose_workers(list(todo.values()), device)
    divisions = {address: _divide(one, workers, device) for address, one in todo.items()}
    count = sum(map(len, divisions.values()))
    plans = {address: _plan(division, workers, count, device, execution) for address, division in divisions.items()}
    importable = all(_importable(one) for one in todo.values())
    backend = Local(min(workers, count) if importable else 1)
    if backend.workers > 1 and report is not None:
        report(Status(0, label=f"starting {backend.workers} processes"))
    Pieces(store, todo, plans, device, keep_every, report).train(backend)
    return [TrainedRun(store.open(experiment.cell)) for experiment in experiments]


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
