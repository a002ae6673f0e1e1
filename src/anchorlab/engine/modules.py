"""Import user modules and scripts, which register the tasks and models that runs name."""

import sys
import traceback
from collections.abc import Iterable, Sequence
from importlib import import_module
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

from anchorlab.errors import SpecError
from anchorlab.runs.plugins import is_module_name
from anchorlab.training import Experiment

imported: list[str] = []
"""The modules that `import_modules` has imported in this process, so that other processes can do the same."""

_scripts: list[str] = []
_importing: list[str] = []
_AS = "__mp_main__"  # the name of a script that is imported, as in multiprocessing
_NOT_FOUND_BY_NAME = ("anchorlab", "__main__", _AS)


def import_modules(names: Sequence[str], folder: str | Path = ".") -> None:
    """Import modules from a folder or from Python's search path, on which the folder is then first.

    Errors: `SpecError` for an invalid module name, and for a module that is missing or raises an error.
    """
    folder = str(Path(folder).absolute())
    if names and folder not in sys.path:
        sys.path.insert(0, folder)
    for name in names:
        if not is_module_name(name) or name.endswith(".py"):
            raise SpecError("import", f"{name!r} is not the name of a module", "write --import my_module")
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            raise SpecError("import", f"{name} cannot be imported ({error})", "run where it lies") from None
        except (Exception, SystemExit) as error:
            raise SpecError("import", f"{name} fails: {_told(error)}", "correct the module") from error
        if name not in imported:
            imported.append(name)


def import_script(path: str, package: str = "") -> None:
    """Import the script that started a training, once, without the code below `if __name__ == "__main__":`.

    `package` is the package of a module that was started by `python -m`; relative imports in the module need it.

    Errors: `SpecError` for a script that is missing or raises an error.
    """
    if path in _scripts:
        return
    loader = SourceFileLoader(_AS, path)
    module = sys.modules[_AS] = ModuleType(_AS)
    module.__file__, module.__package__ = path, package
    folder = str(Path(path).parent)
    if not package and folder not in sys.path:
        sys.path.insert(0, folder)  # as for the script itself
    _importing.append(path)
    try:
        loader.exec_module(module)
    except (Exception, SystemExit) as error:
        if isinstance(error, SpecError) and error.field == "import":
            raise
        name = Path(path).name
        raise SpecError("import", f"the script {name} fails: {_told(error)}", "correct the script") from error
    finally:
        _importing.pop()
    _scripts.append(path)


def refuse_in_import() -> None:
    """Raise `SpecError` while `import_script` imports a script, which would train again in every worker."""
    if _importing:
        problem = f"{Path(_importing[-1]).name} trains while a worker imports it"
        raise SpecError("import", problem, "put what it runs below `if __name__ == '__main__':`")


def script_of(experiments: Iterable[Experiment]) -> tuple[str, str] | None:
    """Return the file and package of the running script if it defines a part of an experiment; else None."""
    main = sys.modules["__main__"]
    file = getattr(main, "__file__", None)  # None in a notebook or at a prompt
    if file is None or "__main__" not in defining_modules(experiments):
        return None
    return str(Path(file).absolute()), main.__package__ or ""


def modules_of(experiments: Iterable[Experiment]) -> list[str]:
    """Return the user modules that register the parts of experiments, except a script that is being run."""
    names = defining_modules(experiments)
    return sorted(name for name in names if is_module_name(name) and name.partition(".")[0] not in _NOT_FOUND_BY_NAME)


def defining_modules(experiments: Iterable[Experiment]) -> set[str]:
    """Return the modules that define the tasks, models and losses of experiments."""
    parts = (part for one in experiments for part in (one.task, one.model, one.recipe.loss) if part is not None)
    return {type(part).__module__ for part in parts}


def _told(error: BaseException) -> str:
    frames = [one for one in traceback.extract_tb(error.__traceback__) if "importlib" not in one.filename]
    at = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if len(frames) > 1 else ""
    return f"{type(error).__name__}: {error}".removesuffix(": ") + at
