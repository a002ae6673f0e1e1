"""The index of a store: a cache of the data that listings of runs show. It can be deleted at any time.

The run directories remain the source of truth. Every listing checks the time and size of each run's manifest and reads
new or changed runs again, so writers of runs need not know the index. It is one table of SQLite in the user's cache
folder. A damaged index is made anew; if it cannot be written, listings read the runs.
"""

import gc
import hashlib
import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

from anchorlab.cache import cache_folder
from anchorlab.errors import StoreError
from anchorlab.plain import discard
from anchorlab.runs.curves import ends_of, intact_tables, packed_curves
from anchorlab.runs.entry import ODD, Entry, entry_of
from anchorlab.runs.lock import locked
from anchorlab.runs.names import MANIFEST, is_address
from anchorlab.runs.run import Run

_VERSION = 3  # raise it whenever the columns or the meaning of their values change
_TABLE = """
PRAGMA page_size = 32768;  -- a row has 2 kB: the file is 20 % smaller than with pages of 4 kB, and read faster
CREATE TABLE IF NOT EXISTS runs (
    address TEXT PRIMARY KEY, changed INTEGER, manifest INTEGER, label TEXT, members INTEGER, size INTEGER, ends JSON,
    environments JSON, task JSON, model JSON, recipe JSON, seeds JSON, others JSON
)"""
_ENTRIES = """SELECT address, changed, manifest, label, members, size,
    environments, task, model, recipe, seeds, others FROM runs"""
_ENDS = "SELECT address, changed, ends FROM runs WHERE ends IS NOT NULL"
_INSERT = "INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, ?, ?, NULL, ?, ?, ?, ?, ?, ?)"
_UPDATE = "UPDATE runs SET ends = ? WHERE address = ? AND changed = ?"
_DELETE = "DELETE FROM runs WHERE address = ?"
_PARTS = ("task", "model", "recipe", "members")  # of a specification, each in a column, since many runs share them
_BATCH = 1000  # runs that are read before the index is written
_PATIENCE = 10.0  # seconds to wait for another process that uses the index
_Result = TypeVar("_Result")

_Key = tuple[int, int]
"""When the manifest of a run was written, in nanoseconds since 1970, and its size in bytes."""


class Index:
    """The index of the store in `root`. Several processes may use it at once."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def path(self) -> Path:
        """The file of the index. Errors: `OSError` without a store, `RuntimeError` for a user without a home."""
        status = self.root.stat()
        place = [str(self.root.resolve()), status.st_dev, status.st_ino, os.uname().nodename]
        key = hashlib.sha256(json.dumps(place).encode()).hexdigest()[:32]
        return cache_folder() / "index" / f"{key}.{_VERSION}.sqlite"

    def entries(self) -> list[Entry]:
        """Return the entry of every run in the store, in order of addresses."""
        if not self.root.is_dir():
            return []
        collects = gc.isenabled()
        gc.disable()  # with 10^5 runs, scanning the new objects takes 1/6 of the time
        try:
            return self._entries()
        finally:
            if collects:
                gc.enable()

    def ends(self, entries: Iterable[Entry]) -> dict[str, dict[str, float]]:
        """Return the final metrics of each finished run, by address and `SPLIT.METRIC`; damaged tables are left out.

        They are means over members, each at its last step, over all sequences of a split, with unedited weights.
        """
        changed = {one.address: one.changed for one in entries if one.state == "finished"}
        kept = (self._use(_ends) if changed else None) or {}
        found = {address: ends for address, (then, ends) in kept.items() if changed.get(address) == then}
        for batch in _batches([address for address in changed if address not in found]):
            read = ends_of(intact_tables(self.root, batch))
            found |= read
            self._write(_UPDATE, [(json.dumps(ends), address, changed[address]) for address, ends in read.items()])
        return found

    def curves(self, entries: Sequence[Entry]) -> dict[str, bytes]:
        """Return the curves of each run by address, as `packed_curves`; they are read anew each time.

        An unfinished run has them up to its newest state.
        """
        addresses = {
            state: [one.address for one in entries if one.state == state] for state in ("finished", "unfinished")
        }
        batches = (packed_curves(intact_tables(self.root, batch), {}) for batch in _batches(addresses["finished"]))
        begun = {}
        for address in addresses["unfinished"]:
            with suppress(*ODD):  # it has no plan yet, or has just been finished
                begun[address] = Run(self.root / address).metrics_so_far()
        return {address: curves for batch in (*batches, packed_curves({}, begun)) for address, curves in batch.items()}

    def _entries(self) -> list[Entry]:
        keys = _present(self.root)
        kept = self._use(_kept) or {}
        self._write(_DELETE, [(address,) for address in kept if address not in keys])
        found = [entry for address, (key, entry) in kept.items() if keys.get(address) == key]
        for batch in _batches(sorted(keys.keys() - {one.address for one in found})):
            read = [entry_of(run) for address in batch if (run := Run(self.root / address)).path.is_dir()]
            found += read
            finished = [one for one in read if one.state == "finished"]
            self._write(_INSERT, [_row(one, key) for one in finished if (key := keys[one.address])])
        return sorted(found, key=itemgetter(0))

    def _write(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        if rows:
            self._use(lambda table: table.executemany(statement, rows))

    def _use(self, work: Callable[[sqlite3.Connection], _Result]) -> _Result | None:
        """Return `work(table)` for the table on disk, which is made anew if damaged; None where it cannot be used."""
        with suppress(OSError, StoreError, RuntimeError):  # no right to write, in use for long, no home
            path = self.path
            with locked(path.with_suffix(".lock"), _PATIENCE):
                for _ in range(2):
                    try:
                        with closing(sqlite3.connect(path)) as table, table:
                            table.executescript(_TABLE)
                            return work(table)
                    except (sqlite3.Error, ValueError, LookupError, TypeError):  # damaged, or the disk is full
                        discard(path)
                        discard(path.with_name(f"{path.name}-journal"))
        return None


def _present(root: Path) -> dict[str, _Key | None]:
    """Return the key of every run in a store by address; None for a run without a manifest, which is unfinished."""
    keys: dict[str, _Key | None] = {}  # the loop takes most of the time of a listing
    stat, folder = os.stat, os.open(root, os.O_RDONLY)  # faster than absolute paths
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not is_address(name := entry.name):
                    continue
                try:
                    status = stat(f"{name}/{MANIFEST}", dir_fd=folder, follow_symlinks=False)
                    keys[name] = status.st_mtime_ns, status.st_size
                except OSError:
                    if entry.is_dir():
                        keys[name] = None
    finally:
        os.close(folder)
    return keys


def _batches(addresses: Sequence[str]) -> Iterator[Sequence[str]]:
    return (addresses[start : start + _BATCH] for start in range(0, len(addresses), _BATCH))


def _row(entry: Entry, key: _Key) -> tuple[Any, ...]:
    others = dict(entry.spec)
    parts = [{name: others.pop(name)} if name in others else {} for name in _PARTS]
    texts = [json.dumps(one, separators=(",", ":")) for one in (entry.environments, *parts, others)]
    return (entry.address, *key, entry.label, entry.members, entry.size, *texts)


def _kept(table: sqlite3.Connection) -> dict[str, tuple[_Key, Entry]]:
    kept, parsed = {}, cache(json.loads)  # so that runs with equal parts share them
    for address, changed, manifest, label, members, size, environments, *parts in table.execute(_ENTRIES):
        task, model, recipe, seeds, others = parts
        spec = {**parsed(task), **parsed(model), **parsed(recipe), **parsed(seeds), **parsed(others)}
        entry = Entry(address, "finished", label, members, size, changed, spec, parsed(environments))
        kept[address] = (changed, manifest), entry
    return kept


def _ends(table: sqlite3.Connection) -> dict[str, tuple[int, dict[str, float]]]:
    return {address: (changed, json.loads(text)) for address, changed, text in table.execute(_ENDS)}
