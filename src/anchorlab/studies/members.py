"""Find the runs of an experiment's members: trained together, or one by one on other days and machines."""

from collections.abc import Sequence

from anchorlab.engine import On, run
from anchorlab.engine.pool import Backend
from anchorlab.progress import Report
from anchorlab.runs import Run, Store
from anchorlab.runs.assembled import AssembledRun
from anchorlab.training import Experiment, TrainedRun


def run_with_parts(
    experiments: Sequence[Experiment],
    store: Store,
    parts: Sequence[Store],
    workers: int | None = None,
    device: str = "cpu",
    report: Report | None = None,
    on: On | Backend = "local",
) -> list[TrainedRun]:
    """Return the finished run of each experiment, after training what neither the store nor `parts` has.

    Members of an experiment that were trained alone are not trained again, even without any further store: the run is
    assembled from them and the others.

    Args:
        parts: further stores, which are only read
        experiments, store, workers, device, report, on: as for `anchorlab.engine.run`

    Errors: as `anchorlab.engine.run`.
    """
    stores = [store, *parts]
    run(asked(experiments, stores), store, workers, device, report=report, on=on)
    return [TrainedRun(found, one) for one in experiments if (found := held(one, stores)) is not None]


def one_by_one(experiment: Experiment) -> list[Experiment]:
    """Return the experiment of each member alone, with its own seed and settings."""
    return [experiment.take(range(member, member + 1)) for member in range(len(experiment.members))]


def found_in(experiment: Experiment, stores: Sequence[Store]) -> Run | None:
    """Return the finished run of exactly this experiment in the first store that has it."""
    return next((store.open(experiment.cell) for store in stores if experiment.cell in store), None)


def held(experiment: Experiment, stores: Sequence[Store]) -> Run | None:
    """Return the finished run of an experiment, if need be assembled from the runs of its members.

    None if the stores lack the experiment and one of its members.
    """
    if (whole := found_in(experiment, stores)) is not None:
        return whole
    members = [found_in(one, stores) for one in one_by_one(experiment)]
    parts = [one for one in members if one is not None]
    return AssembledRun(experiment.cell, parts) if len(parts) == len(members) else None


def asked(experiments: Sequence[Experiment], stores: Sequence[Store]) -> list[Experiment]:
    """Return what to train in the first store: whole experiments, or the missing members if the stores have others.

    Finished runs of the first store are included: which runs are trained together, and so every byte, must not depend
    on what is finished, and what a kill left next to a finished run has to be removed. Runs that only another store has
    are left out.
    """
    found = []
    for experiment in experiments:
        if experiment.cell in stores[0]:
            found.append(experiment)
        elif found_in(experiment, stores) is None:
            members = one_by_one(experiment)
            absent = [one for one in members if found_in(one, stores) is None]
            apart = [one for one in members if one in absent or one.cell in stores[0]]
            found += [experiment] if len(absent) == len(members) else apart
    return found
