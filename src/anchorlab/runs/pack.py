"""Packs: many small finished runs in one file, an SQLite archive that is read in place.

A pack is `packs/runs.<digest>.sqlar` in a store. Its table `sqlar` (https://sqlite.org/sqlar.html) holds the files of
its runs as `<address>/<name>`, byte for byte as in their folders, so that `sqlite3 FILE -A` lists and extracts them.
Each file is checked against its run's manifest when it is read. The pack also holds the time and size of each run's
manifest, by which listings detect changed runs, and one table of all metrics, so that one read yields the metrics of
many runs.

A pack is written to a temporary file, renamed into place, and never changed. If a run has a folder too, the folder
takes precedence.
"""

import os
import secrets
import sqlite3
import threading
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from anchorlab.errors import StoreError
from anchorlab.plain import check_way
from anchorlab.runs.atomic_files import DIGEST_LENGTH, fingerprint, sync_directory
from anchorlab.runs.database import limit_work, open_database
from anchorlab.runs.metrics import MOST_ROWS, count_rows, scan_metrics
from anchorlab.runs.names import MANIFEST, is_address, is_file_of_run

if TYPE_CHECKING:
    import polars

SMALL = 1_000_000
"""The largest run that is packed, in bytes."""

Key = tuple[int, int]
"""When the manifest of a run was written, in nanoseconds since 1970, and its size in bytes."""

MOST_RUNS = 10_000
"""The largest number of runs in a pack."""

_METRICS = "metrics.parquet"
_MOST_FILES = 10_000  # of one run; together they are small
_LATEST = 2**62  # nanoseconds since 1970, the limit for a file's time
_TABLES = """
PRAGMA page_size = 16384;
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
CREATE TABLE sqlar (name TEXT PRIMARY KEY, mode INT, mtime INT, sz INT, data BLOB);
CREATE TABLE manifests (address TEXT PRIMARY KEY, changed INTEGER NOT NULL, size INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE tables (name TEXT PRIMARY KEY, sha256 TEXT NOT NULL, data BLOB NOT NULL);
"""
_DATA = f"CASE WHEN length(data) <= {SMALL} THEN data END"  # larger than a packed run: not even read
_FILE_MODE = 0o100644
_Result = TypeVar("_Result")


class Packed(NamedTuple):
    """A file of a run: its content, and when it was written, in nanoseconds since 1970."""

    content: bytes
    changed: int


@dataclass(frozen=True)
class Pack:
    """A pack, for reading. The file name holds the content's digest; the content never changes.

    Errors: `StoreError` from every reader, for a damaged file; `FileNotFoundError` if the pack has been removed, which
    happens after its runs were moved elsewhere.
    """

    path: Path

    @property
    def keys(self) -> Mapping[str, Key]:
        """The key of each run by address, in order of addresses."""
        return _keys(self)

    def size(self, address: str) -> int:
        """Return the size of a run's files in bytes, uncompressed."""
        select = "SELECT sz FROM sqlar WHERE name > ? AND name < ? LIMIT ?"
        rows = self.use(lambda pack: pack.execute(select, (*_span(address), _MOST_FILES)).fetchall())
        if not all(type(size) is int and 0 <= size <= SMALL for (size,) in rows):
            raise self.damaged()
        return sum(size for (size,) in rows)

    def read(self, address: str, name: str) -> bytes | None:
        """Return the content of a file of a run, or None if the pack does not hold it."""
        select = f"SELECT sz, {_DATA} FROM sqlar WHERE name = ?"
        row = self.use(lambda pack: pack.execute(select, (f"{address}/{name}",)).fetchone())
        return None if row is None else self._unpacked(*row)

    def runs(self, addresses: Iterable[str]) -> Iterator[tuple[str, dict[str, Packed]]]:
        """Yield each run's address and all of its files by name."""
        select = f"SELECT name, sz, {_DATA}, mtime FROM sqlar WHERE name > ? AND name < ? ORDER BY name LIMIT ?"
        for address in addresses:
            span = (*_span(address), _MOST_FILES)
            rows = self.use(lambda pack: pack.execute(select, span).fetchall())  # noqa: B023 - called at once
            files: dict[str, Packed] = {}
            left = SMALL
            for path, size, data, seconds in rows:
                name = path.partition("/")[2] if type(path) is str else ""
                times = type(seconds) is int and 0 <= seconds < _LATEST // 1_000_000_000
                if not (is_file_of_run(name) and times):
                    raise self.damaged()
                changed = self.keys[address][0] if name == MANIFEST else seconds * 1_000_000_000
                files[name] = Packed(self._unpacked(size, data, left), changed)
                left -= len(files[name].content)
            yield address, files

    def _unpacked(self, size: Any, data: Any, most: int = SMALL) -> bytes:
        """Return the uncompressed content of a file of `size` bytes; never decompress more than `most` bytes."""
        if not (type(size) is int and 0 <= size <= most and type(data) is bytes):
            raise self.damaged()
        if len(data) == size:
            return data
        whole = zlib.decompressobj()
        try:
            content = whole.decompress(data, size + 1)
        except zlib.error:
            raise self.damaged() from None
        if len(content) != size or not whole.eof:
            raise self.damaged()
        return content

    def metrics(self, addresses: Collection[str]) -> "polars.LazyFrame":
        """Return the metrics of some runs as one table, in order of addresses, with the address in a column `run`.

        Errors: `StoreError` if the table is damaged, or has `MOST_ROWS` rows or more.
        """
        import polars as pl

        select = "SELECT sha256, data FROM tables WHERE name = ?"
        row = self.use(lambda pack: pack.execute(select, (_METRICS,)).fetchone())
        if row is None or type(row[1]) is not bytes or sha256(row[1]).hexdigest() != row[0]:
            raise self.damaged()
        try:
            found, count = scan_metrics(row[1], "run"), count_rows(row[1], "run")
        except ValueError:
            raise self.damaged() from None
        if count >= MOST_ROWS:
            remedy = "run `anchorlab runs unpack`, then `anchorlab runs pack`, which makes smaller packs"
            raise StoreError(f"{self.path}: has {MOST_ROWS} rows of metrics or more; {remedy}")
        return found if len(addresses) == len(self.keys) else found.filter(pl.col("run").is_in(list(addresses)))

    def problem(self) -> str | None:
        """Read the whole file and describe what is wrong with it; None if nothing is."""
        try:
            self.metrics(self.keys)
            if f".{fingerprint(self.path).sha256[:DIGEST_LENGTH]}." not in self.path.name:
                return str(self.damaged())
        except StoreError as error:
            return str(error)
        except OSError as error:
            return f"{self.path}: cannot be read: {error.strerror}"
        return None

    def use(self, work: Callable[[sqlite3.Connection], _Result]) -> _Result:
        """Return `work(connection)` for a connection to the file."""
        try:
            status = self.path.lstat()
            return work(_newest.connection(self.path, status.st_ino, status.st_mtime_ns))
        except FileNotFoundError:
            raise
        except OSError as error:
            raise StoreError(f"{self.path}: cannot be read: {error.strerror}") from None
        except sqlite3.Error as error:
            _newest.open = None
            self.path.lstat()  # raises FileNotFoundError if the pack was removed meanwhile
            if "unable to open" in str(error):
                raise StoreError(f"{self.path}: cannot be read; allow this user to read it") from None
            raise self.damaged() from None

    def damaged(self) -> StoreError:
        """Return the error for a pack whose content we never write."""
        problem = "damaged: altered after it was written"
        return StoreError(f"{self.path}: {problem}; put a copy in its place, or delete it and train its runs again")


class _Open:
    """An open pack, closed once it is no longer referenced. It needs no locks, since a pack never changes."""

    def __init__(self, path: Path) -> None:
        self.connection = open_database(path, _TABLES, immutable=True)

    def __del__(self) -> None:
        with suppress(AttributeError):  # opening failed
            self.connection.close()


class _Newest(threading.local):
    """The pack that this thread read last, kept open because it is the likeliest to be read next."""

    key: object = None
    open: _Open | None = None

    def connection(self, path: Path, *version: int) -> sqlite3.Connection:
        key = os.getpid(), path, version
        if self.open is None or self.key != key:
            self.open = None
            self.open, self.key = _Open(path), key
        limit_work(self.open.connection)
        return self.open.connection


_newest = _Newest()


@lru_cache(maxsize=1024)
def _keys(pack: Pack) -> Mapping[str, Key]:
    select = "SELECT address, changed, size FROM manifests ORDER BY address LIMIT ?"
    rows = pack.use(lambda one: one.execute(select, (MOST_RUNS + 1,)).fetchall())
    if not 0 < len(rows) <= MOST_RUNS or not all(map(_is_key, rows)):
        raise pack.damaged()
    return {address: (changed, size) for address, changed, size in rows}


def _is_key(row: tuple[Any, Any, Any]) -> bool:
    """Return whether a row holds a valid address, time and size. Paths are built only from valid addresses."""
    address, changed, size = row
    times = type(changed) is int and 0 <= changed < _LATEST and type(size) is int and size >= 0
    return type(address) is str and is_address(address) and times


def _span(address: str) -> tuple[str, str]:
    """Return the exclusive limits between which the names of a run's files sort."""
    return f"{address}/", f"{address}0"  # "0" follows "/" in ASCII


def packs_of(root: Path) -> list[Pack]:
    """Return the packs of a store. Errors: `StoreError` if their folder is a link."""
    folder = root / "packs"
    check_way(folder, root)
    try:
        with os.scandir(folder) as found:
            names = sorted(one.name for one in found if one.name.endswith(".sqlar"))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [Pack(folder / name) for name in names]


def wherever(read: Callable[[], _Result]) -> _Result:
    """Return `read()`, retried when files are missing: another process may be moving them into a pack or out of one.

    Errors: `FileNotFoundError` if files are still missing at the fifth try.
    """
    for _ in range(4):
        with suppress(FileNotFoundError):
            return read()
    return read()


def pack_with(root: Path, address: str) -> Pack | None:
    """Return a pack of a store that holds a run, or None."""
    return wherever(lambda: next((pack for pack in packs_of(root) if address in pack.keys), None))


def with_packs(root: Path, look: Callable[[], _Result]) -> tuple[_Result, list[Pack]]:
    """Return `look()`, which reads a store's folders, and the store's packs, consistently.

    Both are read again until the packs stay the same, so that no run on its way between them is missed.
    """
    packs = packs_of(root)
    while True:
        found, now = look(), packs_of(root)
        with suppress(FileNotFoundError):
            if now == packs and all(pack.keys for pack in packs):  # reads and caches the keys
                return found, packs
        packs = now


def write_pack(folder: Path, runs: Iterable[tuple[str, Mapping[str, Packed]]], metrics: "polars.DataFrame") -> Pack:
    """Write a pack completely, or not at all.

    Args:
        folder: the store's folder `packs`
        runs: each run's address and files, in order of addresses
        metrics: the metrics of all these runs, in the same order, with the address in a first column `run`

    Errors: `StoreError` if the pack cannot be written.
    """
    from io import BytesIO

    temporary = folder / f".{secrets.token_hex(8)}.tmp"
    buffer = BytesIO()
    metrics.write_parquet(buffer, compression="zstd", statistics=True, row_group_size=2**18)
    table = buffer.getvalue()
    try:
        with closing(sqlite3.connect(temporary)) as pack:
            pack.executescript(_TABLES)
            with pack:
                pack.execute("INSERT INTO tables VALUES (?, ?, ?)", (_METRICS, sha256(table).hexdigest(), table))
                for address, files in runs:
                    manifest = files[MANIFEST]
                    key = address, manifest.changed, len(manifest.content)
                    pack.execute("INSERT INTO manifests VALUES (?, ?, ?)", key)
                    pack.executemany("INSERT INTO sqlar VALUES (?, ?, ?, ?, ?)", _rows(address, files))
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        path = folder / f"runs.{fingerprint(temporary).sha256[:DIGEST_LENGTH]}.sqlar"
        temporary.replace(path)
        sync_directory(folder)
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"{folder}: cannot be written: {error}") from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    return Pack(path)


def _rows(address: str, files: Mapping[str, Packed]) -> Iterator[tuple[str, int, int, int, bytes]]:
    """Yield the rows of a run's files; as in the sqlar format, a file is compressed only if that makes it smaller."""
    for name, (content, changed) in sorted(files.items()):
        short = zlib.compress(content)
        data = short if len(short) < len(content) else content
        yield f"{address}/{name}", _FILE_MODE, changed // 1_000_000_000, len(content), data
