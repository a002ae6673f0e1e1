"""Run experiments, here or elsewhere, unless the store already contains them."""

import logging
import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from math import inf
from pathlib import Path
from typing import Literal, get_args

from anchorlab.engine.backend import Backend
from anchorlab.engine.driver import Driver, Failure
from anchorlab.engine.local import Local
from anchorlab.engine.members import asked, held
from anchorlab.engine.modules import refuse_in_import
from anchorlab.engine.plan import check_fits, check_place, devices_of, planned, with_starts
from anchorlab.engine.ray_cluster import Ray
from anchorlab.engine.slurm import Slurm
from anchorlab.errors import AnchorlabError, DivergedWarning, IncompleteError, StoreError
from anchorlab.printable import first_few
from anchorlab.progress import Report, Status
from anchorlab.runs import RunDirectory, Store
from anchorlab.spec import unknown_name
from anchorlab.training import Experiment, TrainedRun
from anchorlab.training.trainer import ExecutionName

logger = logging.getLogger(__name__)

On = Literal["local", "ray", "slurm"]
"""Where runs are trained: on this machine, by a Ray cluster, or by jobs of Slurm."""


def run(
    experiments: Sequence[Experiment],
    store: Store | str | Path | None = None,
    workers: int | None = None,
    device: str = "cpu",
    execution: ExecutionName = "auto",
    report: Report | None = None,
    keep_every: float = 20.0,
    on: On | Backend = "local",
    parts: Sequence[Store] | None = None,
) -> list[TrainedRun]:
    """Train the experiments that the store does not contain yet.

    A killed run resumes from its last state, with its original chunks, and ends with the same bytes as an uninterrupted
    run. Results do not depend on the number of workers: they are equal in float64 and agree within rounding in float32.

    One process at a time trains in a store: a second one waits until the first has ended, and then trains what is left.

    Runs of a tiny model that differ only in per-member numbers, such as the learning rate, are trained as one ensemble
    but kept separately.

    Args:
        experiments: the experiments to train; duplicates are trained once
        store: where runs are kept, a store or its directory; `Store()` when None
        workers: the number of processes that share the members on a CPU; up to 64 members of tiny models that are
            trained as one ensemble share one process. None chooses: only this process for less than about half a minute
            of work, else one process per core. Each process computes with one thread, or with more if there are fewer
            jobs than workers. On CUDA, None trains all members together in this process on a single device, else in one
            process per device.
        device: `cpu` or `cuda`
        execution: as for `fit`
        report: called with the status a few times per second
        keep_every: seconds between two kept states
        on: `local` trains on this machine; `ray` on a Ray cluster and `slurm` by jobs of Slurm, whose nodes share the
            store's folder. `Ray(...)` and `Slurm(...)` select a cluster and name user modules. Except for `local`,
            `workers` is the number of chunks into which the members of a run are divided, by default one per member.
        parts: further stores, which are only read. If given, even without any store, members of an experiment that were
            trained alone, here or there, are not trained again: the run is assembled from them and the others.

    Returns: the finished run of each experiment.

    Issues one `DivergedWarning` that names the members that diverged in newly trained runs (see `TrainedRun.diverged`).

    Errors: `SpecError` for a device or an execution that does not exist, and for a script that defines a task or model
    and trains in several processes, which import it, without `if __name__ == "__main__":`; `StoreError` for a damaged
    store. If a piece fails, all pieces that do not depend on its run are still trained; then `IncompleteError` is
    raised, or the piece's own error if nothing was finished and all failures are alike.
    """
    store = Store.of(store)
    if execution not in get_args(ExecutionName):
        raise unknown_name("execution", str(execution), get_args(ExecutionName), "execution")
    if isinstance(on, str) and on not in get_args(On):
        raise unknown_name("on", str(on), get_args(On), "backend")
    if parts is not None:
        stores = [store, *parts]
        run(asked(experiments, stores), store, workers, device, execution, report, keep_every, on)
        runs = [held(one, stores) for one in experiments]
        return [TrainedRun(one) for one in runs if one is not None]
    device, say, told = check_place(device, workers, here=on == "local"), report or _log, set[str]()

    def waiting(holder: str) -> None:
        text = f"waiting for {holder}, which trains in {store.root}"
        say(Status(0, label=text, note="" if text in told else text))  # once as a note, then as the label
        told.add(text)

    stages = with_starts(experiments, store)
    trained = {one.cell.address: one for stage in stages for one in stage if one.cell not in store}
    if trained:
        refuse_in_import()
    if on == "local":
        check_fits(trained.values(), device)
    with store.training(inf, waiting) if trained else nullcontext():
        _train(experiments, store, workers, device, execution, say, keep_every, on)
    if (text := divergence(store, {address: one.cell.label for address, one in trained.items()})) is not None:
        warnings.warn(text, DivergedWarning, stacklevel=2)
    return [TrainedRun(store.open(experiment.cell)) for experiment in experiments]


def _log(status: Status) -> None:
    if status.note:
        logger.warning(status.note)


def _train(
    experiments: Sequence[Experiment],
    store: Store,
    workers: int | None,
    device: str,
    execution: ExecutionName,
    report: Report,
    keep_every: float,
    on: On | Backend,
) -> None:
    """Train the experiments that the store lacks, after what they start from. Errors: as `run`."""
    failures, without_start, failed = list[Failure](), list[Failure](), set[str]()
    merged = 0
    for stage in with_starts(experiments, store):
        for experiment in {one.cell.address: one for one in stage if one.cell in store}.values():
            _check_finished(store.open(experiment.cell))
        todo = {one.cell.address: one for one in stage if one.cell not in store}
        lost = [address for address, one in todo.items() if one.start and one.start.cell.address in failed]
        without_start += [(todo[one].cell.label, AnchorlabError("what it starts from has failed")) for one in lost]
        failed |= set(lost)
        todo = {address: one for address, one in todo.items() if address not in failed}
        if not todo:
            continue
        plans = planned(todo, stage, workers, device, execution, here=on == "local")
        backend: Backend | None = None
        if not isinstance(on, str):
            backend = on
        elif on != "local":
            backend = {"ray": Ray, "slurm": Slurm}[on](device=device)
        elif plans.processes > 1:
            backend = Local(plans.processes, devices_of(device))
        driver = Driver(store, todo, plans, backend, device, keep_every, report)
        driver.train()
        failures += driver.failures
        failed |= driver.failed
        merged += len(todo) - len(driver.failed)
    if failures:
        if merged == 0 and len({str(error) for _, error in failures}) == 1:
            raise failures[0][1]
        raise IncompleteError([*failures, *without_start]) from failures[0][1]


def _check_finished(directory: RunDirectory) -> None:
    """Raise `StoreError` for a damaged run; remove leftovers if its writer was killed just after finishing it."""
    if problems := directory.problems():
        raise StoreError(problems[0])
    if directory.state_path.exists():
        with suppress(StoreError), directory:  # another process may be removing them, or this user lacks permission
            pass


def divergence(store: Store, labels: Mapping[str, str]) -> str | None:
    """Return one line that names the members of finished runs that diverged, and when; None if none did.

    `labels` has the runs' names for the message, by address.
    """
    from anchorlab.runs.curves import all_diverged, intact_tables

    if not labels:  # reading tables imports polars
        return None
    found: dict[str, list[str]] = {}
    for address, _, seed, step in all_diverged(intact_tables(store.root, sorted(labels))).rows():
        found.setdefault(address, []).append(f"seed {seed} by step {step}")
    if not found:
        return None
    named = [f"{labels[address]} ({address}): {first_few(members)}" for address, members in found.items()]
    return f"diverged (metrics are not finite): {first_few(named, '; ')}; lower the learning rate or clip"
