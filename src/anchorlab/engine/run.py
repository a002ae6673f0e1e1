"""Run experiments, here or elsewhere, unless the store already contains them."""

import logging
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from math import inf
from pathlib import Path
from typing import Literal, get_args

from anchorlab.engine.driver import Driver, Failure
from anchorlab.engine.local import Local
from anchorlab.engine.modules import refuse_in_import
from anchorlab.engine.plan import check_fits, checked_device, devices_of, planned, with_starts
from anchorlab.engine.pool import Backend
from anchorlab.engine.ray_cluster import Ray
from anchorlab.engine.slurm import Slurm
from anchorlab.errors import AnchorlabError, DivergedWarning, IncompleteError, SpecError, StoreError
from anchorlab.printable import first_few
from anchorlab.progress import Report, Status
from anchorlab.runs import Store
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
        device: `cpu` or `cuda`; a backend given as `on` has its own
        execution: as for `fit`
        report: called with the status a few times per second
        keep_every: seconds between two kept states
        on: `local` trains on this machine; `ray` on a Ray cluster and `slurm` by jobs of Slurm, whose nodes share the
            store's folder. `Ray(...)` and `Slurm(...)` select a cluster and name user modules. Except for `local`,
            `workers` is the number of chunks into which the members of a run are divided, by default one per member.

    Returns: the finished run of each experiment.

    Issues one `DivergedWarning` that names the members that diverged in newly trained runs (see `TrainedRun.diverged`).

    Errors: `SpecError` for a device or an execution that does not exist, and for a script that defines a task or model
    and trains in several processes, which import it, without `if __name__ == "__main__":`; `StoreError` for a damaged
    store. If a chunk fails, everything that does not depend on its run is still trained; then `IncompleteError` is
    raised, or the chunk's own error if nothing was finished and all failures are alike.
    """
    store, say, experiments = Store.of(store), report or _log, list(experiments)
    check_execution(execution)
    if not isinstance(on, Backend) and on not in get_args(On):
        raise unknown_name("on", str(on), get_args(On), "backend")
    for one in experiments:
        if (part := one.not_storable) is not None:
            remedy = "train it by al.train without a store" + (", or register the loss" if "loss" in part else "")
            raise SpecError("store", f"cannot keep a run with {part}", remedy)
    device = checked_device(device, workers, here=on == "local")
    if isinstance(on, Backend) and device not in ("cpu", on.device):
        remedy = f"give it to the backend: {type(on).__name__}(device={device!r})"
        raise SpecError("device", f"is {device}, but {type(on).__name__} trains on {on.device}", remedy)
    stages = with_starts(experiments, store)
    missing = {one.cell.address: one for stage in stages for one in stage if one.cell not in store}
    if missing:
        refuse_in_import()
    if on == "local":
        check_fits(missing.values(), device)
    failures, without_start, failed, merged = list[Failure](), list[Failure](), set[str](), 0
    with store.training(inf, _waiting(store, say)) if missing else nullcontext():
        for stage in with_starts(experiments, store):  # another process may have trained some meanwhile
            _check_finished(stage, store)
            todo = {one.cell.address: one for one in stage if one.cell not in store}
            lost = [one for one in todo.values() if one.start and one.start.cell.address in failed]
            without_start += [(one.cell.label, AnchorlabError("what it starts from has failed")) for one in lost]
            failed |= {one.cell.address for one in lost}
            todo = {address: one for address, one in todo.items() if address not in failed}
            if not todo:
                continue
            plans = planned(todo, stage, workers, device, execution, here=on == "local")
            driver = Driver(store, todo, plans, _backend(on, plans.processes, device), device, keep_every, say)
            driver.train()
            failures += driver.failures
            failed |= driver.failed
            merged += len(todo) - len(driver.failed)
    if failures:
        if merged == 0 and len({str(error) for _, error in failures}) == 1:
            raise failures[0][1]
        raise IncompleteError([*failures, *without_start]) from failures[0][1]
    if (text := divergence(TrainedRun(store.open(one.cell), one) for one in missing.values())) is not None:
        warnings.warn(text, DivergedWarning, stacklevel=2)
    return [TrainedRun(store.open(one.cell), one) for one in experiments]


def check_execution(name: str) -> None:
    """Raise `SpecError` for an execution that does not exist."""
    if name not in get_args(ExecutionName):
        raise unknown_name("execution", str(name), get_args(ExecutionName), "execution")


def _log(status: Status) -> None:
    if status.note:
        logger.warning(status.note)


def _waiting(store: Store, report: Report) -> Callable[[str], None]:
    """Return a function that reports which process this one waits for: once as a note, then as the label."""
    told = set[str]()

    def waiting(holder: str) -> None:
        text = f"waiting for {holder}, which trains in {store.root}"
        report(Status(0, label=text, note="" if text in told else text))
        told.add(text)

    return waiting


def _backend(on: On | Backend, processes: int, device: str) -> Backend | None:
    """Return the backend to train on; None to train in this process."""
    if not isinstance(on, str):
        return on
    if on == "local":
        return Local(processes, devices_of(device)) if processes > 1 else None
    return Ray(device=device) if on == "ray" else Slurm(device=device)


def _check_finished(experiments: Iterable[Experiment], store: Store) -> None:
    """Raise `StoreError` for a damaged run; remove leftovers if a writer was killed just after finishing a run."""
    for one in {one.cell.address: one for one in experiments if one.cell in store}.values():
        directory = store.open(one.cell)
        if problems := directory.problems():
            raise StoreError(problems[0])
        if directory.state_path.exists():
            with suppress(StoreError), directory:  # another process may be removing them, or permission is missing
                pass


def divergence(runs: Iterable[TrainedRun]) -> str | None:
    """Return one line that names the members of finished runs that diverged, and when; None if none did."""
    named = []
    for one in sorted(runs, key=lambda one: one.run.address):
        seeds, lost = one.experiment.members.seeds, one.diverged
        members = first_few([f"seed {seeds[member]} by step {step}" for member, step in lost.items()])
        named += [f"{one.experiment.cell.label} ({one.run.address}): {members}"] if lost else []
    if not named:
        return None
    return f"diverged (metrics are not finite): {first_few(named, '; ')}; lower the learning rate or clip"
