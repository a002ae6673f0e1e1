"""The journal of requests and answers: lines of JSON that survive a kill."""

import asyncio
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args, get_type_hints

from anchorlab.errors import StoreError
from anchorlab.language.asking.request import Request, Said
from anchorlab.language.endpoint.answer import Answer
from anchorlab.language.endpoint.secret import Secret
from anchorlab.language.endpoint.server import Server
from anchorlab.plain import check_way, parse_json
from anchorlab.runs.atomic_files import sync_directory
from anchorlab.runs.lock import Lock

_FORMAT = 1
_MOST_BYTES = 2**30
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_FINISHES = get_args(get_type_hints(Said)["finish"])


class Journal:
    """A file with one line for every answer, and one for every failed try.

    A line is on the disk before its answer is used. If a kill cuts the last line, the line is removed and its question
    sent again. Within `with`, no other process writes. The journal may lie in somebody else's store. Therefore it must
    be a regular file without a second hard link, and the path to it, from the folder above its own, must hold no
    symbolic link.

    A line holds
        format, at: the version of the format, and the time
        key: a digest of everything that the answer depends on
        url, model, tokenizer, extra, request: the request
        answer, answered_as, cost, seconds, tries: the answer, its model name, and its cost, time and tries; or
        problem: why the try failed

    `answers` holds the answers in the file, by key.
    """

    def __init__(self, path: Path, server: Server, secret: Secret) -> None:
        self.path, self.answers = path, dict[str, Said]()
        self._server: dict[str, Any] = {"url": server.url, "model": server.model, "tokenizer": server.tokenizer}
        self._server |= {"extra": dict(server.extra)}
        self._secret, self._lock = secret, Lock(path.with_name(path.name + ".lock"))
        self._pending = list[bytes]()
        self._left: tuple[int, ...] | None = None  # how this process left the file
        self._file: int | None = None
        self._writing = asyncio.Lock()

    def __enter__(self) -> "Journal":
        try:
            with self._reported():
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._lock.acquire()
                check_way(self.path, self.path.parent.parent)
                new = not self.path.exists()
                self._file = os.open(self.path, _FLAGS, 0o666)
                self._check_file(self._file)
                if new:
                    sync_directory(self.path.parent)
                self._read_lines(self._file)
        except StoreError:
            self._close()
            raise
        self._writing = asyncio.Lock()  # a new lock, because the old one may belong to an interrupted event loop
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        try:
            if self._pending:  # answers that came just before an interruption
                self._append(b"".join(self._pending))
            if error is None and self._file is not None:
                self._left = _stamp(self._file)
        finally:
            self._close()

    def _close(self) -> None:
        self._pending.clear()
        if self._file is not None:
            os.close(self._file)
            self._file = None
        self._lock.release()

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Within `with`, turn an `OSError` into a `StoreError`."""
        try:
            yield
        except OSError as error:
            raise StoreError(f"{self.path}: cannot be written: {error.strerror or error}") from None

    async def keep(self, key: str, request: Request, reply: Answer, cost: float, seconds: float, tries: int) -> None:
        """Write an answer; it is on the disk when this returns."""
        came = {"answer": asdict(reply.said), "answered_as": reply.model}
        await self._write(key, request, came | {"cost": cost, "seconds": round(seconds, 3), "tries": tries})
        self.answers[key] = reply.said

    async def keep_problem(self, key: str, request: Request, problem: str) -> None:
        """Write why a try failed."""
        await self._write(key, request, {"problem": problem})

    async def _write(self, key: str, request: Request, came: Mapping[str, Any]) -> None:
        head = {"format": _FORMAT, "at": datetime.now(UTC).isoformat(timespec="milliseconds"), "key": key}
        # ASCII only: a cut reply may end in half a surrogate pair, which UTF-8 lacks
        line = json.dumps({**head, **self._server, "request": asdict(request), **came})
        self._pending.append(f"{self._secret.hide(line)}\n".encode())
        async with self._writing:  # who gets the lock first writes all pending lines: one fsync for many
            if lines := b"".join(self._pending):
                self._pending.clear()
                await asyncio.to_thread(self._append, lines)

    def _append(self, lines: bytes) -> None:
        assert self._file is not None, "the journal is closed"
        with self._reported():
            while lines:
                lines = lines[os.write(self._file, lines) :]
            os.fsync(self._file)

    def _check_file(self, file: int) -> None:
        """Raise `StoreError` unless this is a regular file with one name, short enough to read at once."""
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise StoreError(f"{self.path}: is not a regular file; delete it")
        if found.st_nlink > 1:
            raise StoreError(f"{self.path}: has a second name, whose content would change too; put a copy in its place")
        if found.st_size > _MOST_BYTES:
            raise StoreError(f"{self.path}: is larger than {_MOST_BYTES} bytes; give another file")

    def _read_lines(self, file: int) -> None:
        """Read the file, unless it is unchanged since this process closed it; remove a torn last line."""
        if self._left is not None and _stamp(file) == self._left:
            return
        self.answers, self._left = {}, None
        with os.fdopen(file, "rb", closefd=False) as stream:
            content = stream.read()
        whole = content[: content.rfind(b"\n") + 1]
        lines = whole.splitlines(keepends=True)
        for number, line in enumerate(lines, start=1):
            try:
                self._understand(parse_json(line))
            except (ValueError, KeyError, TypeError, AttributeError):
                if number < len(lines) or len(whole) < len(content):
                    raise StoreError(f"{self.path}: line {number} is damaged; remove the line, or the file") from None
                whole = whole[: -len(line)]  # torn by the disk, although it ends with a newline
        if len(whole) < len(content):
            os.ftruncate(file, len(whole))
            os.fsync(file)

    def _understand(self, line: Mapping[str, Any]) -> None:
        if line["format"] != _FORMAT:
            raise StoreError(f"{self.path}: written by another version of anchorlab; give another file")
        if "answer" in line:
            said = Said(**line["answer"])
            counts = all(one is None or (type(one) is int and one >= 0) for one in (said.read, said.written))
            if not (isinstance(said.text, str) and said.finish in _FINISHES and counts):
                raise TypeError("no answer")
            self.answers[str(line["key"])] = said


def _stamp(file: int) -> tuple[int, ...]:
    found = os.fstat(file)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
