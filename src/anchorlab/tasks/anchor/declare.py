"""Tasks declared in TOML files."""

import tomllib
from pathlib import Path

from anchorlab.errors import SpecError
from anchorlab.tasks.registry import parse_task
from anchorlab.tasks.task import Task


def load_task(path: str | Path) -> Task:
    """The task that a TOML file declares, an anchor function unless it names another `family`.

    It is called as the file says under `name`, or else as the file itself.

        [operations]
        3 = "+5"

    Errors: `SpecError` that names the file and the field.
    """
    path = Path(path)
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SpecError("task", f"there is no file {path}", "check the path") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        problem = str(getattr(error, "strerror", None) or error).replace("\n", " ")
        raise SpecError(str(path), f"cannot be read as TOML: {problem}", "mend the file") from None
    try:
        return parse_task({"family": "anchor", "name": path.stem, **data}, at="task")
    except SpecError as error:
        field = error.field.removeprefix("task").removeprefix(".")
        raise SpecError(f"{path}: {field}" if field else str(path), error.problem, error.remedy) from None
