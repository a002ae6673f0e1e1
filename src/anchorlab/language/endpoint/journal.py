"""The answers of models behind servers, in a file that survives a kill."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

from anchorlab.errors import StoreError
from anchorlab.language.asking.request import Request, Said
from anchorlab.language.endpoint.wire import SAID
from anchorlab.plain import MOST_BYTES_OF_RESULTS, parse_json, read_data
from anchorlab.runs.lock import locked


class Journal:
    """Answers by key, in a file with a line of JSON for each: key, request, answer, and the model's name."""

    def __init__(self, path: Path) -> None:
        self.answers, self._path = dict[str, Said](), path

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Read the file and hold it open for writing. Errors: `StoreError` if it is in use or cannot be written."""
        self.answers = {}
        try:
            with locked(self._path.with_name(f"{self._path.name}.lock")):
                content = read_data(self._path, MOST_BYTES_OF_RESULTS) if os.path.lexists(self._path) else b""
                for line in content.splitlines():
                    with suppress(ValueError, LookupError, TypeError):  # a line cut short by a kill is no answer
                        found = parse_json(line)
                        self.answers[str(found["key"])] = SAID.validate_python(found["answer"])
                with self._path.open("a", encoding="ascii", buffering=1) as self._file:
                    self._file.write("\n" if content and not content.endswith(b"\n") else "")
                    yield
        except OSError as error:
            raise StoreError(f"{self._path}: cannot be written: {error.strerror or error}") from None

    def keep(self, key: str, request: Request, said: Said, model: str) -> None:
        """Write an answer, and the name under which the model gave it; a kill afterwards does not lose it."""
        line = {"key": key, "request": asdict(request), "answer": asdict(said), "answered_as": model}
        self._file.write(f"{json.dumps(line)}\n")
        self.answers[key] = said
