"""The index of a store: what lists of runs show, kept in one file that can be thrown away at any time.

The run directories remain the truth. Every listing looks at each run's manifest and reads again the runs that are new
or have changed, so writers of runs need not know the index. A damaged index, or one of another version, is made anew;
where none can be written, it is made in memory.
"""

import hashlib
import json
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, TypeVar

from anchorlab.errors import StoreError
from anchorlab.runs.cell import canonical_json
from anchorlab.runs.curves import Measured, measure, packed
from anchorlab.runs.entry import Entry
from anchorlab.runs.lock import Lock
from anchorlab.runs.run import Run
from anchorlab.runs.run_directory import is_address

_VERSION = 1  # raised whenever the tables, or what is kept in them, change
_TABLES = f"""
CREATE TABLE parts (id INTEGER PRIMARY KEY, text TEXT UNIQUE NOT NULL);
CREATE TABLE runs (
    address TEXT PRIMARY KEY, changed INTEGER NOT NULL, bytes INTEGER NOT NULL, label TEXT NOT NULL,
    members INTEGER NOT NULL, size INTEGER NOT NULL, part_ids TEXT NOT NULL, environments_id INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE curves (address TEXT PRIMARY KEY, changed INTEGER NOT NULL, ends TEXT NOT NULL, curves BLOB NOT NULL);
PRAGMA user_version = {_VERSION};
"""
_BATCH = 1000  # runs that are read between two commits
_PATIENCE = 10.0  # seconds to wait for another process that writes the index
_NO_MANIFEST = -1  # in place of the manifest's size

_Key = tuple[int, int]
"""When a run's manifest changed, in nanoseconds, and its size; of an unfinished run, when its specification did."""

_Row = tuple[str, int, int, str, int, int, str, int]
_Result = TypeVar("_Result")


class Index:
    """The index of the store in `root`, kept in its folder `index`. Several processes may use it at once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.path = root / "index" / "runs.sqlite"

    def entries(self) -> list[Entry]:
        """Return every run of the store in order of addresses."""
        return self.use(lambda connection: _entries(self.root, connection)) if self.root.is_dir() else []

    def ends(self, entries: Iterable[Entry]) -> dict[str, dict[str, float]]:
        """Return the metrics at the end of each finished run, by address and `SPLIT.METRIC`.

        They are means over members at their last steps, over all sequences of a split, with unedited weights.
        """
        finished = _finished(entries)
        found = self.use(lambda connection: _measured(self.root, connection, finished, "ends"))
        return {address: json.loads(text) for address, text in found.items()}

    def curves(self, entries: Iterable[Entry]) -> dict[str, bytes]:
        """Return the curves of each finished run by address, as `packed` writes them."""
        finished = _finished(entries)
        return self.use(lambda connection: _measured(self.root, connection, finished, "curves"))

    def curves_of(self, address: str) -> bytes | None:
        """Return the curves of one run, as `packed` writes them; None if it is not finished or damaged."""
        run = Run(self.root / address)
        if not run.finished:
            return None
        changed = run.manifest_path.stat().st_mtime_ns

        def read(connection: sqlite3.Connection) -> bytes | None:
            row = connection.execute("SELECT changed, curves FROM curves WHERE address = ?", (address,)).fetchone()
            return bytes(row[1]) if row is not None and row[0] == changed else None

        found = self.use(read)
        return found or next((packed(one.curves) for _, one in _measure(self.root, [address])), None)

    def use(self, work: Callable[[sqlite3.Connection], _Result]) -> _Result:
        """Return what `work` returns on the index: the one on disk, a new one if that is damaged, or one in memory."""
        for attempt in range(2):
            opened = self._file()
            try:
                with closing(self._open()) as connection:
                    return work(connection)
            except (sqlite3.Error, ValueError, LookupError, TypeError) as error:
                if attempt or "locked" in str(error) or not self._make_anew(opened):
                    break
        with closing(sqlite3.connect(":memory:")) as connection:
            connection.executescript(_TABLES)
            return work(connection)

    def _open(self) -> sqlite3.Connection:
        """Return a connection to the file. Errors: `sqlite3.Error` if there is none of this version."""
        connection = sqlite3.connect(f"{self.path.as_uri()}?mode=rw", uri=True, timeout=_PATIENCE)
        try:
            if connection.execute("PRAGMA user_version").fetchone() != (_VERSION,):
                raise sqlite3.DatabaseError("is of another version")
        except BaseException:
            connection.close()
            raise
        return connection

    def _file(self) -> int | None:
        """Return the number of the file; None if there is none."""
        with suppress(OSError):
            return self.path.stat().st_ino
        return None

    def _make_anew(self, damaged: int | None) -> bool:
        """Put an empty index in place of a missing or damaged file; return whether that was possible.

        It is renamed into place, so that no process meets half of one; another process may have made one already.
        """
        lock = Lock(self.path.parent / "lock")
        try:
            lock.acquire(_PATIENCE)
        except StoreError:
            return False
        try:
            if self._file() != damaged:
                return True
            for left in self.path.parent.glob(".*.tmp*"):  # of a killed process
                left.unlink()
            temporary = self.path.parent / f".{secrets.token_hex(8)}.tmp"
            with closing(sqlite3.connect(temporary)) as connection:
                connection.executescript(_TABLES)
            # The journal of a killed writer belongs to the damaged file.
            self.path.with_name(f"{self.path.name}-journal").unlink(missing_ok=True)
            temporary.replace(self.path)
        except (OSError, sqlite3.Error):
            return False
        finally:
            lock.release()
        return True


def entry_of(run: Run) -> Entry:
    """Return the entry of a run, read from its directory."""
    found = _read(run)
    if found is None:
        return Entry(run.address, "damaged", "", 0, run.size, 0, _when(run))
    label, members, size, spec, environments = found
    state, size = ("finished", size) if run.finished else ("unfinished", run.size)
    return Entry(run.address, state, label, members, size, 0, _when(run), spec, environments)


def _entries(root: Path, connection: sqlite3.Connection) -> list[Entry]:
    present = dict(_present(root))
    rows: dict[str, _Row] = {row[0]: row for row in connection.execute("SELECT * FROM runs")}
    gone = [address for address in rows if address not in present]
    for address in gone:
        del rows[address]
    stale = [address for address, key in present.items() if address not in rows or rows[address][1:3] != key]
    for address in stale:
        rows.pop(address, None)
    damaged: list[str] = []
    if gone:
        with connection:
            for table in ("runs", "curves"):
                connection.executemany(f"DELETE FROM {table} WHERE address = ?", [(one,) for one in gone])
    for start in range(0, len(stale), _BATCH):
        # Read before the transaction begins, which other processes wait for.
        read = {address: _read(Run(root / address)) for address in stale[start : start + _BATCH]}
        damaged += [address for address, found in read.items() if found is None and (root / address).is_dir()]
        with connection:
            for address, found in read.items():
                if found is not None:
                    rows[address] = _write(connection, address, present[address], found)
    parts = {key: json.loads(text) for key, text in connection.execute("SELECT id, text FROM parts")}
    entries = [_entry(root, rows[address], parts) for address in present if address in rows]
    return sorted([*entries, *(entry_of(Run(root / address)) for address in damaged)], key=lambda entry: entry.address)


def _finished(entries: Iterable[Entry]) -> dict[str, int]:
    """Return when each finished run was, in nanoseconds, by address."""
    return {entry.address: entry.changed for entry in entries if entry.state == "finished"}


def _measured(root: Path, connection: sqlite3.Connection, finished: Mapping[str, int], column: str) -> dict[str, Any]:
    """Return a column of the table of curves, after reading the metrics that it lacks; of damaged ones, nothing."""
    kept = dict(connection.execute("SELECT address, changed FROM curves"))
    missing = [address for address, changed in finished.items() if kept.get(address) != changed]
    for start in range(0, len(missing), _BATCH):
        read = list(_measure(root, missing[start : start + _BATCH]))
        rows = [(one, finished[one], json.dumps(found.ends), packed(found.curves)) for one, found in read]
        with connection:
            connection.executemany("INSERT OR REPLACE INTO curves VALUES (?, ?, ?, ?)", rows)
    found = connection.execute(f"SELECT address, changed, {column} FROM curves")
    return {address: value for address, changed, value in found if finished.get(address) == changed}


def _measure(root: Path, addresses: Iterable[str]) -> Iterator[tuple[str, Measured]]:
    """Yield what is kept of the metrics of runs; nothing for a run whose table is damaged."""
    paths = {}
    for address in addresses:
        run = Run(root / address)
        with suppress(OSError, ValueError, LookupError, TypeError):
            _intact(run.metrics_path, _manifest(run))
            paths[address] = run.metrics_path
    yield from measure(paths)


def _present(root: Path) -> Iterator[tuple[str, _Key]]:
    """Yield the address and key of every run in the store."""
    with os.scandir(root) as found:
        names = [one.name for one in found if is_address(one.name) and one.is_dir()]
    for name in sorted(names):
        for file, no_manifest in (("manifest.json", False), ("spec.json", True)):
            try:
                status = os.stat(f"{root}/{name}/{file}")  # noqa: PTH116 - a Path costs more than the call
            except OSError:
                continue
            yield name, (status.st_mtime_ns, _NO_MANIFEST if no_manifest else status.st_size)
            break
        else:
            yield name, (0, _NO_MANIFEST)


def _read(run: Run) -> tuple[str, int, int, Mapping[str, Any], list[dict[str, str | None]]] | None:
    """Return label, number of members, size, specification and environments of a run; None for a damaged one.

    The specification of a finished run is compared with the manifest, not each file with its own checksum, too: that
    would take five times as long.
    """
    try:
        if run.finished:
            files = _manifest(run)
            content = _intact(run.spec_path, files)
            record, size = json.loads(content), sum(one["size"] for one in files.values())
            if record["address"] != run.address:
                return None
            size += run.manifest_path.stat().st_size
        else:
            record, size = {"label": run.label, "spec": run.spec, "environments": run.environments}, 0
        members = record["spec"].get("members")
        seeds = members.get("seeds", ()) if isinstance(members, Mapping) else members or ()
        return record["label"], len(seeds), size, record["spec"], record["environments"]
    except (StoreError, OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


def _manifest(run: Run) -> Mapping[str, Any]:
    """Return what the manifest of a finished run says of each file."""
    found: Mapping[str, Any] = json.loads(run.manifest_path.read_bytes())["files"]
    return found


def _intact(path: Path, files: Mapping[str, Any]) -> bytes:
    """Return the content of a file of a run. Errors: `ValueError` if it is not what the manifest says."""
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != files[path.name]["sha256"]:
        raise ValueError(f"{path} is damaged")
    return content


def _write(connection: sqlite3.Connection, address: str, key: _Key, found: Any) -> _Row:
    label, members, size, spec, environments = found
    part_ids = {name: _part_id(connection, part) for name, part in spec.items()}
    row = (address, *key, label, members, size, json.dumps(part_ids), _part_id(connection, environments))
    connection.execute(f"INSERT OR REPLACE INTO runs VALUES ({', '.join('?' * len(row))})", row)
    return row


def _part_id(connection: sqlite3.Connection, part: Any) -> int:
    """Return the key of a part of a specification, which runs that have the same one share."""
    text = (canonical_json(part),)
    connection.execute("INSERT OR IGNORE INTO parts (text) VALUES (?)", text)
    return int(connection.execute("SELECT id FROM parts WHERE text = ?", text).fetchone()[0])


def _entry(root: Path, row: _Row, parts: Mapping[int, Any]) -> Entry:
    address, changed, manifest, label, members, size, part_ids, environments_id = row
    spec = {name: parts[key] for name, key in json.loads(part_ids).items()}
    if manifest == _NO_MANIFEST:
        run = Run(root / address)
        return Entry(address, "unfinished", label, members, run.size, changed, _when(run), spec, parts[environments_id])
    return Entry(address, "finished", label, members, size, changed, changed / 1e9, spec, parts[environments_id])


def _when(run: Run) -> float:
    with suppress(OSError):
        return run.modified
    return 0.0
