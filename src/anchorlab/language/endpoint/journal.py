"""The answers of models behind servers, in a file that survives a kill."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

from anchorlab.errors import StoreError
from anchorlab.language.asking.request import Request, Said
from anchorlab.language.endpoint.wire import SAID
from anchorlab.plain import MOST_BYTES_OF_RESULTS, check_way, parse_json, read_plain
from anchorlab.runs.lock import Lock


class Journal:
    """Answers by key, in a file with a line of JSON for each: key, request, answer, and the model's name."""

    def __init__(self, path: Path) -> None:
        self.answers, self._path = dict[str, Said](), path

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Hold the file open for writing. Errors: `StoreError` if another process has it, or it cannot be written."""
        lock, self.answers = Lock(self._path.with_name(f"{self._path.name}.lock")), {}
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire()
            check_way(self._path, self._path.parent)
            content = read_plain(self._path, MOST_BYTES_OF_RESULTS) if self._path.exists() else b""
            for line in content.splitlines():
                with suppress(ValueError, LookupError, TypeError):  # a line that a kill has torn is no answer
                    found = parse_json(line)
                    self.answers[str(found["key"])] = SAID.validate_python(found["answer"])
            with self._path.open("a", encoding="ascii", buffering=1) as self._file:
                self._file.write("\n" if content and not content.endswith(b"\n") else "")
                yield
        except OSError as error:
            raise StoreError(f"{self._path}: cannot be written: {error.strerror or error}") from None
        finally:
            lock.release()

    def keep(self, key: str, request: Request, said: Said, model: str) -> None:
        """Write an answer, and the name under which the model gave it; a kill afterwards does not lose it."""
        line = {"key": key, "request": asdict(request), "answer": asdict(said), "answered_as": model}
        self._file.write(f"{json.dumps(line)}\n")
        self.answers[key] = said
