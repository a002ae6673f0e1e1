"""Open runs of a store by address or by conditions."""

from pathlib import Path

from anchorlab.errors import SpecError
from anchorlab.runs import Store
from anchorlab.training.trained_run import TrainedRun


def open_run(address: str, store: Store | str | Path | None = None) -> TrainedRun:
    """Open a finished run by its address, or by the first digits of it that no other run has.

    It is `al.run`. Commands print the address of each run that they train or list. `store` is a store or its directory;
    `Store()` when None.

    Errors: `StoreError` if no run, several runs, or an unfinished run has such an address.

    >>> open_run("3e345").plot("accuracy")  # doctest: +SKIP
    """
    if not isinstance(address, str):
        raise SpecError("address", f"should be text, got {address!r:.60}", "write al.run('3e345')")
    return TrainedRun(Store.of(store).find(address))


def find_runs(*where: str, store: Store | str | Path | None = None) -> list[TrainedRun]:
    """Open the finished runs that fulfil all conditions, in order of their addresses; without conditions, all of them.

    Conditions are written as for `anchorlab runs --where`. `store` is a store or its directory; `Store()` when None.

    Errors: `SpecError` for an invalid condition, and for an unknown or ambiguous field.

    >>> find_runs("model.layers=2", "test.accuracy>0.9")  # doctest: +SKIP
    """
    kept = Store.of(store)
    return [TrainedRun(kept.find(one.address)) for one in kept.select(*where) if one.state == "finished"]
