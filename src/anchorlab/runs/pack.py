"""Packs: many small finished runs in one file, an SQLite archive that is read in place.

A pack is `packs/runs.<digest>.sqlar` in a store. Its table `sqlar` (https://sqlite.org/sqlar.html) holds the files of
its runs as `<address>/<name>`, byte by byte what their folders held, so that `sqlite3 FILE -A` lists and extracts them;
each is checked against its run's manifest when it is read. Beside them are the times of their manifests, by which lists
tell whether a run has changed, and one table of all metrics, so that the metrics of many runs are one read.

A pack is written beside its place, moved there, and never changed. Where a run has a folder too, the folder counts.
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
from anchorlab.runs.database import limit_work, open_database
from anchorlab.runs.files import DIGEST_LENGTH, fingerprint, sync_directory
from anchorlab.runs.metrics import MOST_ROWS, count_rows, scan_metrics
from anchorlab.runs.names import MANIFEST, is_address, is_file_of_run

if TYPE_CHECKING:
    import polars

SMALL = 1_000_000
"""Bytes of a run above which it is not packed."""

Key = tuple[int, int]
"""When the manifest of a run was written, in nanoseconds, and its size."""

MOST_RUNS = 10_000
"""The runs of the largest pack."""

_METRICS = "metrics.parquet"
_MOST_FILES = 10_000  # of a run, all of its files together being small
_LATEST = 2**62  # nanoseconds since 1970 that a time of a file can have
_TABLES = """
PRAGMA page_size = 16384;
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
CREATE TABLE sqlar (name TEXT PRIMARY KEY, mode INT, mtime INT, sz INT, data BLOB);
CREATE TABLE manifests (address TEXT PRIMARY KEY, changed INTEGER NOT NULL, size INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE tables (name TEXT PRIMARY KEY, sha256 TEXT NOT NULL, data BLOB NOT NULL);
"""
_DATA = f"CASE WHEN length(data) <= {SMALL} THEN data END"  # more than a run has is not even read
_FILE_MODE = 0o100644
_Result = TypeVar("_Result")


class Packed(NamedTuple):
    """A file of a run: its content, and when it was written, in nanoseconds."""

    content: bytes
    changed: int


@dataclass(frozen=True)
class Pack:
    """A pack, for reading. Its path tells its content, which never changes.

    Errors: `StoreError` from every reader, for a damaged file; `FileNotFoundError` if it has been removed, after its
    runs were put elsewhere.
    """

    path: Path

    @property
    def keys(self) -> Mapping[str, Key]:
        """The runs by address, in order."""
        return _keys(self)

    def size(self, address: str) -> int:
        """Return the number of bytes of a run's files, before they were compressed."""
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
        """Yield runs with all of their files by name."""
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
        """Return the content of a file of `size` bytes, at most `most`, never making more."""
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
        """Return the metrics of some runs as one table, the address in the column `run`, in order of addresses.

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
        """Read the whole file, and say what is wrong with it."""
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
        """Return what `work` reads from the file."""
        try:
            status = self.path.lstat()
            return work(_newest.connection(self.path, status.st_ino, status.st_mtime_ns))
        except FileNotFoundError:
            raise
        except OSError as error:
            raise StoreError(f"{self.path}: cannot be read: {error.strerror}") from None
        except sqlite3.Error as error:
            _newest.open = None
            self.path.lstat()  # removed meanwhile, after its runs were put elsewhere
            if "unable to open" in str(error):
                raise StoreError(f"{self.path}: cannot be read; allow this user to read it") from None
            raise self.damaged() from None

    def damaged(self) -> StoreError:
        """Return the error for a pack that holds what no pack of ours does."""
        problem = "damaged: altered after it was written"
        return StoreError(f"{self.path}: {problem}; put a copy in its place, or delete it and train its runs again")


class _Open:
    """An open pack, closed when nobody holds it. Since a pack never changes, reading it takes no locks."""

    def __init__(self, path: Path) -> None:
        self.connection = open_database(path, _TABLES, immutable=True)

    def __del__(self) -> None:
        with suppress(AttributeError):  # it could not be opened
            self.connection.close()


class _Newest(threading.local):
    """The pack that a thread has read last, which it most likely reads next."""

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
    """Return whether a row names a run: only then may files be looked for, and folders made, under its address."""
    address, changed, size = row
    times = type(changed) is int and 0 <= changed < _LATEST and type(size) is int and size >= 0
    return type(address) is str and is_address(address) and times


def _span(address: str) -> tuple[str, str]:
    """Return the limits between which the names of a run's files lie."""
    return f"{address}/", f"{address}0"  # "0" is the sign after "/"


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
    """Return what `read` returns, after some tries where it misses files that are just put into a pack or taken out.

    Errors: `FileNotFoundError` for files that are nowhere.
    """
    for _ in range(4):
        with suppress(FileNotFoundError):
            return read()
    return read()


def pack_with(root: Path, address: str) -> Pack | None:
    """Return a pack of a store that holds a run, or None."""
    return wherever(lambda: next((pack for pack in packs_of(root) if address in pack.keys), None))


def with_packs(root: Path, look: Callable[[], _Result]) -> tuple[_Result, list[Pack]]:
    """Return what `look` finds in a store's folders, and its packs; together they miss no run on its way."""
    packs = packs_of(root)
    while True:
        found, now = look(), packs_of(root)
        with suppress(FileNotFoundError):
            if now == packs and all(pack.keys for pack in packs):  # which are kept, once read
                return found, packs
        packs = now


def write_pack(folder: Path, runs: Iterable[tuple[str, Mapping[str, Packed]]], metrics: "polars.DataFrame") -> Pack:
    """Write a pack completely, or not at all.

    Args:
        folder: the store's folder `packs`
        runs: each run's address and files, in order of addresses
        metrics: the metrics of all of them, the address in the column `run`, in the same order

    Errors: `StoreError` if it cannot be written.
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
    """Yield the rows of a run's files, each compressed where that makes it smaller, as the format has it."""
    for name, (content, changed) in sorted(files.items()):
        short = zlib.compress(content)
        data = short if len(short) < len(content) else content
        yield f"{address}/{name}", _FILE_MODE, changed // 1_000_000_000, len(content), data
