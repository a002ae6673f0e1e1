"""Build tasks from a name and arguments, or from a TOML file."""

import tomllib
from pathlib import Path
from typing import Any

from anchorlab.errors import SpecError, below
from anchorlab.plain import TOO_DEEP, TOO_LONG, has_long_number, is_too_deep, read_data
from anchorlab.spec import typed
from anchorlab.tasks.registry import parse_task, shared, task_factory
from anchorlab.tasks.task import Task


def task(name: str, **arguments: Any) -> Task:
    """Build the task called `name`, or the one declared in the TOML file `name`.

    Arguments given as text, as on a command line, are converted to the argument's type.
    Errors: `SpecError` for an unknown name, an unknown argument, or a value out of range (`task.<argument>`).

    >>> task("anchor/identity", length="12").shape.length
    12
    """
    if name.endswith(".toml"):
        if arguments:
            first = next(iter(arguments))
            raise SpecError(f"task.{first}", f"{name} is a file and takes no arguments", "edit the file")
        return load_task(name)
    factory, model = task_factory(name)
    given = {key: typed(value) if isinstance(value, str) else value for key, value in arguments.items()}
    values = model.parse(given, at="task")

    def build() -> Task:
        with below("task"):
            built = factory(**{key: getattr(values, key) for key in model.model_fields})
        return built.model_copy(update={"name": name})

    return shared((name, factory), values.model_dump_json(serialize_as_any=True), build)


def as_task(given: Task | str | Path) -> Task:
    """Return a task unchanged, or build it from its name or file. Errors: as `task`; `SpecError` for other types."""
    if isinstance(given, Task):
        return given
    if not isinstance(given, str | Path):
        raise SpecError("task", f"{type(given).__name__} is not a task", "give a task, its name or its TOML file")
    return task(str(given))


def load_task(path: str | Path) -> Task:
    """Load a task from a TOML file; it is an anchor function unless the file names another `family`.

    Its name is the file's `name` field, or else the file's stem.

        [operations]
        3 = "+5"

    Errors: `SpecError` that names the file and the field.
    """
    path = Path(path)
    data = read_toml(path, "task")
    if not data.keys() - {"name"}:
        raise SpecError(str(path), "declares no task", 'give its parts, such as rules = {sum = "A x y -> x + y"}')
    try:
        return parse_task({"family": "anchor", "name": path.stem, **data}, at="task")
    except SpecError as error:
        field = error.field.removeprefix("task").removeprefix(".")
        raise SpecError(f"{path}: {field}" if field else str(path), error.problem, error.remedy) from None


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """Read a TOML file of at most 16 MiB.

    Errors: `SpecError` at `what` for a missing file; at the file's path for invalid TOML, tables nested too deeply,
    whole numbers of more than 64 bits, and a path that is not a regular file.
    """
    try:
        found = tomllib.loads(read_data(path, follow=True).decode("utf-8-sig"))
        problem = TOO_DEEP if is_too_deep(found) else TOO_LONG if has_long_number(found) else None
    except RecursionError:
        problem = TOO_DEEP
    except FileNotFoundError:
        raise SpecError(what, f"there is no file {path}", "check the path") from None
    except (OSError, ValueError) as error:  # Python refuses to read decimal numbers of more than 4300 digits
        known = isinstance(error, OSError | UnicodeDecodeError | tomllib.TOMLDecodeError)
        told = str(getattr(error, "strerror", None) or error).replace("\n", " ")
        problem = f"cannot be read as TOML: {told:.200}" if known else TOO_LONG
    if problem is not None:
        raise SpecError(str(path), problem, "correct the file")
    return found
