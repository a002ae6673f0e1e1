"""Studies in a Python file of your own."""

import importlib
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from anchorlab.errors import AnchorlabError, SpecError
from anchorlab.studies.registry import STUDIES, study
from anchorlab.studies.study import Study


def studies_in(path: Path) -> list[Study[Any]]:
    """Return the studies bound to a name in a Python file, or listed in a list or dict there, in order.

    The file is imported with its folder first on Python's path, as under `python FILE`, so that it can import its
    neighbours and other processes can import it. A block under `if __name__ == "__main__":` does not run.

    Errors: `SpecError` for a missing file, for a file with the name of another module, for an error in the file (with
    its line), and for a file without a study.
    """
    with named_in(path):
        module = _imported(path)
    found = {id(one): one for value in vars(module).values() for one in _studies(value)}
    own = [one for one in found.values() if one.name not in STUDIES or one is not study(one.name)]
    if not own:
        problem = f"holds {next(iter(found.values())).name} as it is" if found else "holds no study"
        raise SpecError(str(path), problem, "write STUDY = al.Study(...), or vary one: STUDY = al.study(...).vary(...)")
    return own


@contextmanager
def named_in(path: Path) -> Iterator[None]:
    """Return a context that turns an error in a Python file into a `SpecError` with the file and the line."""
    try:
        yield
    except (Exception, SystemExit) as error:
        line = _line(error, path)
        if line is None:
            raise
        raise SpecError(f"{path}, line {line}", *_told(error)) from error


def _told(error: BaseException) -> tuple[str, str]:
    """Return what is wrong and the remedy."""
    if isinstance(error, SystemExit):
        return "ends the program", "put what it does as a script under if __name__ == '__main__':"
    if isinstance(error, AnchorlabError):
        return str(error), ""
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{type(error).__name__}: {' '.join(text.split())}".removesuffix(": "), "correct the file"


def _imported(path: Path) -> ModuleType:
    if not path.is_file():
        raise SpecError("study", f"there is no file {path}", "check the path")
    place, name = path.resolve(), path.stem
    known = sys.modules.get(name)
    if known is not None and Path(getattr(known, "__file__", None) or "").resolve() == place:
        return known
    if known is not None or name in sys.stdlib_module_names or "." in name:
        raise SpecError(str(path), f"{name!r} is the name of another module", "rename the file")
    if str(place.parent) not in sys.path:
        sys.path.insert(0, str(place.parent))
    importlib.invalidate_caches()
    return importlib.import_module(name)


def _studies(value: Any) -> Iterable[Study[Any]]:
    if isinstance(value, Study):
        return (value,)
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return (one for one in inner if isinstance(one, Study))


def _line(error: BaseException, path: Path) -> int | None:
    """Return the line of the file that an error comes from; None if it did not pass through the file."""
    place = path.resolve()
    if isinstance(error, SyntaxError) and error.filename and Path(error.filename).resolve() == place:
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    return next((frame.lineno for frame in reversed(frames) if Path(frame.filename).resolve() == place), None)
