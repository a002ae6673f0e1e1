"""Import user modules, which register the tasks and models that runs name."""

import sys
import traceback
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path

from anchorlab.errors import SpecError
from anchorlab.runs.plugins import is_module_name
from anchorlab.training import Experiment

_imported: list[str] = []


def import_modules(names: Sequence[str], folder: str | Path = ".") -> None:
    """Import modules from a folder or from Python's search path, on which the folder is then first.

    Errors: `SpecError` for an invalid module name, and for a module that is missing or raises an error.
    """
    place = str(Path(folder).absolute())
    if names and place not in sys.path:
        sys.path.insert(0, place)
    for name in names:
        if not is_module_name(name) or name.endswith(".py"):
            raise SpecError("import", f"{name!r} is not the name of a module", "write --import my_module")
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            raise SpecError("import", f"{name} cannot be imported ({error})", "run where it lies") from None
        except (Exception, SystemExit) as error:
            raise SpecError("import", f"{name} fails: {_told(error)}", "correct the module") from error
        if name not in _imported:
            _imported.append(name)


def imported_modules() -> tuple[str, ...]:
    """Return the modules that `import_modules` imported in this process, so that other processes can do the same."""
    return tuple(_imported)


def modules_of(experiments: Iterable[Experiment]) -> set[str]:
    """Return the user modules that register the tasks and models of experiments, without a script that is being run."""
    names = {type(part).__module__ for one in experiments for part in (one.task, one.model)}
    return {name for name in names if is_module_name(name) and name.partition(".")[0] not in ("anchorlab", "__main__")}


def _told(error: BaseException) -> str:
    """Return an error as text, with the file and line where it was raised."""
    frames = [one for one in traceback.extract_tb(error.__traceback__) if "importlib" not in one.filename]
    at = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if len(frames) > 1 else ""
    return f"{type(error).__name__}: {error}".removesuffix(": ") + at
