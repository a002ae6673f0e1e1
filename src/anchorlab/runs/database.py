"""Open the SQLite files of a store only if they hold exactly our tables, and limit the work of reading them.

An untrusted file may have an endless view in place of a table, triggers, pages that form a cycle, or a journal that
names a file elsewhere, which SQLite would delete.
"""

import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path
from stat import S_ISREG

from anchorlab.plain import open_data

_INSTRUCTIONS = 10**9  # of SQLite's virtual machine per piece of work; listing 10^5 runs takes about 10^7
_STRIDE = 10**6
_LONGEST = 2**30 - 1  # bytes of a value
_ANOTHER_JOURNAL = bytes.fromhex("d9d505f920a163d7")  # ends a journal that names another file
_BESIDE = ("-journal", "-wal", "-shm")


def open_database(path: Path, tables: str, patience: float = 0.0) -> sqlite3.Connection:
    """Return a connection to a file, for writing.

    Args:
        path: a regular file
        tables: the SQL statements that create its tables
        patience: seconds to wait for another process that writes it

    Errors: `OSError` if there is no regular file; `sqlite3.Error` if its tables differ, or if it has a second hard link
    or an unexpected journal or log.
    """
    with open_data(path, None):
        pass
    _check_beside(path)
    connection = sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, timeout=patience, check_same_thread=False)
    try:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        limit_work(connection)
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cell_size_check = ON")
        if _schema(connection) != _expected(tables):
            raise sqlite3.DatabaseError("has other tables than ours")
    except BaseException:
        connection.close()
        raise
    return connection


def limit_work(connection: sqlite3.Connection) -> None:
    """Make queries raise `sqlite3.OperationalError` once they take far more steps than any genuine file needs."""
    left = _INSTRUCTIONS // _STRIDE

    def is_over() -> bool:
        nonlocal left
        left -= 1
        return left < 0

    connection.set_progress_handler(is_over, _STRIDE)


def files_beside(path: Path) -> list[Path]:
    """Return the paths of the journal and logs that SQLite may keep for a file."""
    return [path.with_name(f"{path.name}{end}") for end in _BESIDE]


def _check_beside(path: Path) -> None:
    """Raise `sqlite3.DatabaseError` if a file has a second hard link, or a journal or log that is not ours."""
    if path.stat().st_nlink > 1:
        raise sqlite3.DatabaseError("has another name")
    journal, *others = files_beside(path)
    try:
        status = journal.lstat()
        if not S_ISREG(status.st_mode) or status.st_nlink > 1:
            raise sqlite3.DatabaseError("has an odd journal")
        with open_data(journal, None) as file:
            file.seek(-min(status.st_size, len(_ANOTHER_JOURNAL)), 2)
            if file.read() == _ANOTHER_JOURNAL:
                raise sqlite3.DatabaseError("has a journal that names another file")
    except OSError:  # no journal, or a writer has just removed it
        pass
    if any(other.is_symlink() or other.exists() for other in others):  # we never write these
        raise sqlite3.DatabaseError("has a log of writing ahead")


@cache
def _expected(tables: str) -> list[tuple[str, ...]]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(tables)
        return _schema(connection)


def _schema(connection: sqlite3.Connection) -> list[tuple[str, ...]]:
    """Return a file's tables, indices, views and triggers, with the SQL statements that created them."""
    return connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name LIMIT 100").fetchall()
