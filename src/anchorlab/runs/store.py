"""Stores: directories of runs, which are found by address."""

import os
import secrets
import warnings
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from anchorlab.drawable import Drawable
from anchorlab.errors import SpecError, StoreError
from anchorlab.plain import discard
from anchorlab.runs.cell import Cell
from anchorlab.runs.lock import locked
from anchorlab.runs.names import is_address
from anchorlab.runs.run import Run
from anchorlab.runs.run_directory import LOCK, RunDirectory

if TYPE_CHECKING:
    import polars

    from anchorlab.runs.entry import Entry
    from anchorlab.runs.query import Fields

_REMOVED = ".removed-"


class Store(Drawable):
    """The runs in the directory `root`: by default $ANCHORLAB_STORE, else `runs` in the working directory.

    Nothing is written before a run is opened, and nothing outside `root` but the index, in the user's cache folder. Any
    number of processes may read a store; one at a time trains or removes runs.

    Errors: `StoreError` if `root` is a file, and for a store with packs (files of many runs, made by version 0.2).
    """

    def __init__(self, root: str | Path | None = None) -> None:
        self.root = Path(root if root is not None else os.environ.get("ANCHORLAB_STORE") or "runs").absolute()
        if os.path.isfile(self.root):  # noqa: PTH113 - `is_file` raises if a folder above cannot be read
            raise StoreError(f"{self.root}: is a file; give the store a folder")
        if any((self.root / "packs").glob("*.sqlar")):
            remedy = "unpack them with anchorlab 0.2: `anchorlab runs unpack`"
            raise StoreError(f"{self.root / 'packs'}: holds packed runs, which this version does not read; {remedy}")

    @classmethod
    def of(cls, given: "Store | str | Path | None") -> "Store":
        """Return `given` if it is a store, the store in a directory, or `Store()` for None. Errors: `SpecError`."""
        if isinstance(given, Store):
            return given
        if given is not None and not isinstance(given, str | Path):
            raise SpecError("store", f"{type(given).__name__} is not a store", "give a directory or al.Store(...)")
        return cls(given)

    def __repr__(self) -> str:
        return f"Store({str(self.root)!r})"

    def __contains__(self, cell: Cell) -> bool:
        """Whether the cell's run is finished."""
        return Run(self.root / cell.address).finished

    def training(self, wait: float = 0.0, waiting: Callable[[str], None] | None = None) -> AbstractContextManager[None]:
        """Return a context that holds the lock of the store, as `locked`; only its holder writes and removes runs."""
        return locked(self.root / LOCK, wait, waiting)

    def open(self, cell: Cell) -> RunDirectory:
        """Return the cell's run; `with` opens it for writing, creates it if it is new, and holds the store's lock."""
        if not isinstance(cell, Cell):
            problem = f"should be an experiment's cell, got {cell!r:.60}"
            raise SpecError("cell", problem, "open runs by `al.run(ADDRESS)`")
        return RunDirectory(self.root / cell.address, cell)

    def find(self, prefix: str) -> Run:
        """Return the run whose address begins with `prefix`. Errors: `StoreError` if none or several do."""
        if not prefix:
            raise StoreError(f"{self.root}: the address is empty; write the first digits of one")
        if is_address(prefix.lower()) and (run := Run(self.root / prefix.lower())).path.is_dir():
            return run
        matches = [run for run in self.runs() if run.address.startswith(prefix.lower())]
        if not matches:
            raise StoreError(f"{self.root}: no run begins with {prefix!r}; `anchorlab runs` lists them")
        if len(matches) > 1:
            found = ", ".join(run.address for run in matches[:5]) + (", ..." if len(matches) > 5 else "")
            raise StoreError(f"{self.root}: {prefix!r} is ambiguous ({found}); write more digits")
        return matches[0]

    def runs(self) -> list[Run]:
        """Return all runs, finished or not, in order of their addresses, without reading them."""
        if not self.root.is_dir():
            return []
        with os.scandir(self.root) as found:
            names = [one.name for one in found if is_address(one.name) and one.is_dir()]
        return [Run(self.root / name) for name in sorted(names)]

    def select(self, *conditions: str) -> "list[Entry]":
        """Return the runs that fulfil all conditions, in order of addresses.

        Conditions are written as for `anchorlab runs --where`.

        >>> store.select("model.layers=2", "test.accuracy>0.9")

        Warns of damaged runs that may fulfil the conditions but cannot be read.

        Errors: `SpecError` for an invalid condition, and for an unknown or ambiguous field.
        """
        from anchorlab.runs.query import damage_note

        _, found, damaged = self.matching(conditions)
        if damaged:
            warnings.warn(damage_note(damaged), RuntimeWarning, stacklevel=2)
        return found

    def matching(self, conditions: Iterable[str]) -> "tuple[Fields, list[Entry], list[Entry]]":
        """Return the fields of all runs, the runs that fulfil all conditions, and damaged ones that may fulfil them.

        Errors: as `select`.
        """
        from anchorlab.runs.index import Index
        from anchorlab.runs.query import Condition, Fields, chosen
        from anchorlab.runs.references import studies_by_run

        index, parsed = Index(self.root), [Condition.parse(one) for one in conditions]
        entries = index.entries()
        fields = Fields(entries, lambda: index.ends(entries), lambda: studies_by_run(self.root))
        return fields, *chosen(fields, parsed)

    def metrics(self, *conditions: str) -> "polars.DataFrame":
        """Return the metrics of all finished runs that fulfil the conditions, as one table.

        >>> store.metrics("study=anchor/identity")

        Returns: the columns of `run.metrics`, after a first column `run` with the address.

        Errors: as `select`; `StoreError` that names the damaged files of any run that fulfils the conditions, or may.
        """
        from anchorlab.runs.curves import all_metrics, intact_tables

        _, found, undecided = self.matching(conditions)
        asked = {one.address for one in [*found, *undecided] if one.state != "unfinished"}
        damaged = {one.address for one in [*found, *undecided] if one in undecided or one.state == "damaged"}
        tables = intact_tables(self.root, sorted(asked))
        if lost := [Run(self.root / one) for one in sorted((asked - tables.keys()) | damaged)]:
            problems = [problem for run in lost for problem in run.problems()]
            raise StoreError("; ".join(problems) or f"{lost[0].path}: changed while it was read; try again")
        try:
            return all_metrics(tables)
        except ValueError as error:
            problems = [problem for one in tables for problem in Run(self.root / one).problems()]
            raise StoreError("; ".join(problems) or f"{self.root}: {error}") from None

    def problems(self) -> list[str]:
        """Read every file of all runs, and return one line per problem; empty if there is none."""
        return [problem for run in self.runs() for problem in run.problems()]

    def remove(self, prefix: str) -> str:
        """Remove a run, damaged or not, and return its address.

        The run is renamed before it is deleted, so other processes see it whole or not at all.

        Errors: as `find`; `StoreError` while a process trains in the store, and for a link to a run elsewhere.
        """
        run = self.find(prefix)
        if (error := self.remove_all([run.address])[run.address]) is not None:
            raise error
        return run.address

    def remove_all(self, addresses: Iterable[str]) -> dict[str, StoreError | None]:
        """Remove runs; return by address None for a removed run, or the error with which `remove` would refuse it."""
        found: dict[str, StoreError | None] = {}
        for address in addresses:
            try:
                self._put_aside(self.find(address))
                found[address] = None
            except StoreError as error:
                found[address] = error
        for path in self.root.glob(f"{_REMOVED}*"):  # also of a killed process
            discard(path)
        return found

    def _put_aside(self, run: Run) -> None:
        if run.path.is_symlink():
            raise StoreError(f"{run.path}: is a link to {run.path.resolve()}; delete the link, or both, by hand")
        try:
            with self.training():
                run.path.rename(self.root / f"{_REMOVED}{run.address}-{secrets.token_hex(4)}")
        except OSError as error:
            raise StoreError(f"{run.path}: cannot be removed: {error.strerror or error}") from error
