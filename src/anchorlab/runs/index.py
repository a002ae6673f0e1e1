"""The index of a store: a cache, in one file, of the data that listings of runs show. It can be deleted at any time.

The run directories remain the source of truth. Every listing checks the time and size of each run's manifest and reads
new or changed runs again, so writers of runs need not know the index. An index that is damaged or of another version is
rebuilt; if it cannot be written, it is built in memory.
"""

import gc
import json
import secrets
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

from anchorlab.errors import StoreError
from anchorlab.plain import discard, parse_json
from anchorlab.runs.cell import canonical_json
from anchorlab.runs.curves import Measured, measure, packed
from anchorlab.runs.database import files_beside, open_database
from anchorlab.runs.entry import Entry
from anchorlab.runs.lock import locked
from anchorlab.runs.names import is_environments
from anchorlab.runs.run import Run
from anchorlab.runs.scan import NO_MANIFEST, Found, Key, begun, entry_of, intact_tables, present, read

_VERSION = 2  # raise it whenever the tables or the meaning of their values change
_TABLES = f"""
CREATE TABLE parts (id INTEGER PRIMARY KEY, text TEXT UNIQUE NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE runs (
    address TEXT PRIMARY KEY, changed INTEGER NOT NULL, bytes INTEGER NOT NULL, label TEXT NOT NULL,
    members INTEGER NOT NULL, size INTEGER NOT NULL, part_ids TEXT NOT NULL, environments_id INTEGER NOT NULL,
    crc INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE curves (
    address TEXT PRIMARY KEY, changed INTEGER NOT NULL, ends TEXT NOT NULL, curves BLOB NOT NULL, crc INTEGER NOT NULL
);
PRAGMA user_version = {_VERSION};
"""
_BATCH = 1000  # runs read per commit
_FORMATS = ["%s\0" * count for count in range(10)]  # format of a row's text by its number of values
_PATIENCE = 10.0  # seconds to wait for another process that writes the index
_KINDS = [{kind} for kind in (str, int, int, str, int, int, str, int, int)]  # types of a row's values, by column
_Row = tuple[str, int, int, str, int, int, str, int, int]
_Result = TypeVar("_Result")


class Index:
    """The index of the store in `root`, kept in its folder `index`. Several processes may use it at once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.path = root / "index" / "runs.sqlite"

    def entries(self) -> list[Entry]:
        """Return the entry of every run in the store, in order of addresses."""
        if not self.root.is_dir():
            return []
        with _no_collection():
            return self.use(lambda connection: _entries(self.root, connection))

    def ends(self, entries: Iterable[Entry]) -> dict[str, dict[str, float]]:
        """Return the final metrics of each finished run, by address and `SPLIT.METRIC`.

        They are means over members, each at its last step, over all sequences of a split, with unedited weights.
        """
        finished = _finished(entries)

        def read(connection: sqlite3.Connection) -> dict[str, dict[str, float]]:
            found = _measured(self.root, connection, finished, "ends")
            return {address: _numbers(text) for address, text in found.items()}

        return self.use(read)

    def curves(self, entries: Iterable[Entry]) -> dict[str, bytes]:
        """Return the curves of each finished run by address, compressed by `packed`."""
        finished = _finished(entries)
        return self.use(lambda connection: _measured(self.root, connection, finished, "curves"))

    def use(self, work: Callable[[sqlite3.Connection], _Result]) -> _Result:
        """Return `work(connection)` for the index on disk, which is rebuilt if damaged; else for an index in memory."""
        for attempt in range(2):
            opened = self._file()
            try:
                with closing(self._open()) as connection:
                    return work(connection)
            except (OSError, sqlite3.Error, ValueError, LookupError, TypeError) as error:
                if attempt or "locked" in str(error) or not self._make_anew(opened):
                    break
        with closing(sqlite3.connect(":memory:")) as connection:
            connection.executescript(_TABLES)
            return work(connection)

    def _open(self) -> sqlite3.Connection:
        """Return a connection to the file. Errors: `OSError` if missing; `sqlite3.Error` if damaged or outdated."""
        connection = open_database(self.path, _TABLES, patience=_PATIENCE)
        try:
            if connection.execute("PRAGMA user_version").fetchone() != (_VERSION,):
                raise sqlite3.DatabaseError("is of another version")
        except BaseException:
            connection.close()
            raise
        return connection

    def _file(self) -> int | None:
        """Return the inode number of the index file; None if there is no file."""
        with suppress(OSError):
            return self.path.lstat().st_ino
        return None

    def _make_anew(self, damaged: int | None) -> bool:
        """Replace the file with inode number `damaged` (None: missing) by an empty index; return whether one is there.

        The new file is renamed into place, so that no process sees half of it. If another process has replaced the
        file already, nothing is done.
        """
        try:
            with locked(self.path.parent / "lock", _PATIENCE):
                if self._file() != damaged:
                    return True
                for left in self.path.parent.glob(".*.tmp*"):  # of a killed process
                    discard(left)
                temporary = self.path.parent / f".{secrets.token_hex(8)}.tmp"
                with closing(sqlite3.connect(temporary)) as connection:
                    connection.executescript(_TABLES)
                for other in files_beside(self.path):  # the journal of a killed writer belongs to the damaged file
                    discard(other)
                temporary.replace(self.path)
        except (OSError, StoreError, sqlite3.Error):
            return False
        return True


@contextmanager
def _no_collection() -> Iterator[None]:
    """Turn garbage collection off inside `with`: with 10^5 runs, scanning the new objects takes 1/6 of the time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _entries(root: Path, connection: sqlite3.Connection) -> list[Entry]:
    keys = present(root)
    kept: list[_Row] = list(map(_intact, connection.execute("SELECT * FROM runs")))
    if [set(map(type, column)) for column in zip(*kept, strict=True)] not in ([], _KINDS):  # SQLite stores any type
        raise ValueError("a row holds what we never write")
    rows = [row for row in kept if keys.get(row[0]) == row[1:3]]
    stale = keys.keys() - {row[0] for row in rows} if len(rows) < len(keys) else set()
    damaged: list[str] = []
    if len(rows) < len(kept) and (gone := [row[0] for row in kept if row[0] not in keys]):
        with connection:
            for table in ("runs", "curves"):
                connection.executemany(f"DELETE FROM {table} WHERE address = ?", [(one,) for one in gone])
    for batch in _batches(sorted(stale)):
        # Read before the transaction begins: a transaction makes other processes wait.
        found = {address: read(Run(root / address)) for address in batch}
        damaged += [address for address, one in found.items() if one is None and Run(root / address).exists]
        with connection:
            rows += [
                _write(connection, address, keys[address], one) for address, one in found.items() if one is not None
            ]
    texts = map(_intact, connection.execute("SELECT id, text, crc FROM parts"))
    parts = {key: parse_json(text) for key, text, _ in texts}
    if not all(is_environments(parts[key]) for key in {row[7] for row in rows}):
        raise ValueError("a part is no list of environments")
    entries = [_entry(root, row, parts) for row in rows]
    return sorted([*entries, *(entry_of(Run(root / address)) for address in damaged)], key=itemgetter(0))


def _batches(addresses: list[str]) -> Iterator[list[str]]:
    """Yield batches small enough to release the lock often for other processes."""
    return (addresses[start : start + _BATCH] for start in range(0, len(addresses), _BATCH))


def _finished(entries: Iterable[Entry]) -> dict[str, int]:
    """Return when each finished run was finished, in nanoseconds since 1970, by address."""
    return {entry.address: entry.changed for entry in entries if entry.state == "finished"}


def _measured(root: Path, connection: sqlite3.Connection, finished: Mapping[str, int], column: str) -> dict[str, Any]:
    """Return a column of the table of curves by address, after adding runs that it lacks; damaged runs are skipped."""
    kept = dict(connection.execute("SELECT address, changed FROM curves"))
    missing = [address for address, changed in finished.items() if kept.get(address) != changed]
    for batch in _batches(missing):
        read = _measure(root, batch)
        rows = [_sealed((one, finished[one], json.dumps(found.ends), packed(found.curves))) for one, found in read]
        with connection:
            connection.executemany("INSERT OR REPLACE INTO curves VALUES (?, ?, ?, ?, ?)", rows)
    place = ("address", "changed", "ends", "curves").index(column)
    found = map(_checked, connection.execute("SELECT * FROM curves"))
    return {row[0]: row[place] for row in found if finished.get(row[0]) == row[1]}


def _measure(root: Path, addresses: Sequence[str]) -> list[tuple[str, Measured]]:
    """Return each run's address and summary of metrics; runs with damaged tables are skipped."""
    return measure(intact_tables(root, addresses))


def _write(connection: sqlite3.Connection, address: str, key: Key, found: Found) -> _Row:
    label, members, size, spec, environments = found
    part_ids = {name: _part_id(connection, part) for name, part in spec.items()}
    ids = json.dumps(part_ids), _part_id(connection, environments)
    row: _Row = _sealed((address, *key, label, members, size, *ids))
    connection.execute(f"INSERT OR REPLACE INTO runs VALUES ({', '.join('?' * len(row))})", row)
    return row


def _part_id(connection: sqlite3.Connection, part: Any) -> int:
    """Return the key of a part of a specification, added if it is new; runs with equal parts share one key."""
    text = canonical_json(part)
    made = connection.execute("INSERT OR IGNORE INTO parts (text, crc) VALUES (?, 0)", (text,))
    if made.rowcount:
        key = int(made.lastrowid or 0)
        connection.execute("UPDATE parts SET crc = ? WHERE id = ?", (_crc((key, text)), key))
        return key
    row = connection.execute("SELECT id, text, crc FROM parts WHERE text = ?", (text,)).fetchone()
    return int(_intact(row)[0])


def _sealed(row: tuple[Any, ...]) -> Any:
    """Return a row with a checksum of its values: SQLite has none and would not notice bytes altered on disk."""
    return *row, _crc(row)


def _intact(row: Any) -> Any:
    """Return a row, checksum included. Errors: `ValueError` if its values do not match the checksum."""
    if _crc(row[:-1]) != row[-1]:
        raise ValueError(f"the row of {row[0]} is damaged")
    return row


def _checked(row: Any) -> Any:
    """Return a row of curves as it was written. Errors: as `_intact`, and `ValueError` for values of other types."""
    if list(map(type, row)) != [str, int, str, bytes, int]:  # SQLite stores any type
        raise ValueError("a row holds what we never write")
    return _intact(row)


def _numbers(text: str) -> dict[str, float]:
    """Parse the final metrics of a run. Errors: `ValueError` if the text is not a JSON object of numbers."""
    found = parse_json(text)
    if not isinstance(found, dict) or not all(type(value) in (int, float) for value in found.values()):
        raise ValueError("a row holds what we never write")
    return found


def _crc(row: tuple[Any, ...]) -> int:
    if type(row[-1]) is bytes:
        return zlib.crc32(row[-1], _crc(row[:-1]))
    return zlib.crc32((_FORMATS[len(row)] % row).encode())


def _entry(root: Path, row: _Row, parts: Mapping[int, Any]) -> Entry:
    address, changed, manifest, label, members, size, part_ids, environments_id, _ = row
    spec, environments = _Spec(root, address, part_ids, parts), parts[environments_id]
    if manifest != NO_MANIFEST:
        return Entry(address, "finished", label, members, size, changed, changed / 1e9, spec, environments)
    run = Run(root / address)
    return Entry(address, "unfinished", label, members, run.size, changed, begun(run), spec, environments)


class _Spec(Mapping[str, Any]):
    """The specification of a run, assembled from its parts on first use: a listing shows few of the runs it sorts.

    If the index lacks a part, the specification is read from the run.
    """

    __slots__ = ("_address", "_found", "_part_ids", "_parts", "_root")

    def __init__(self, root: Path, address: str, part_ids: str, parts: Mapping[int, Any]) -> None:
        self._root, self._address, self._part_ids, self._parts = root, address, part_ids, parts
        self._found: Mapping[str, Any] | None = None

    def __getitem__(self, name: str) -> Any:
        return self._whole[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._whole)

    def __len__(self) -> int:
        return len(self._whole)

    @property
    def _whole(self) -> Mapping[str, Any]:
        if self._found is None:
            try:
                self._found = {name: self._parts[key] for name, key in parse_json(self._part_ids).items()}
            except (ValueError, LookupError, TypeError, AttributeError):
                self._found = Run(self._root / self._address).spec
        return self._found
