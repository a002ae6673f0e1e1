"""Shell completion: names of tasks, studies, models and runs, and files that can replace them.

Completion runs at every TAB, so nothing heavy is imported: the names come from a file of the package.
"""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from anchorlab.cli.options.fields import fold
from anchorlab.errors import SpecError
from anchorlab.names import STUDIES
from anchorlab.papers.words import words
from anchorlab.plain import parse_json, read_data
from anchorlab.printable import printable

if TYPE_CHECKING:
    from cyclopts.completion import CompletionContext

_ADDRESS = re.compile(r"[0-9a-f]{20}")
_LONGEST_LABEL = 200  # characters
_MOST_BYTES = 1_000_000  # of a specification that is read for its label
_MOST_LABELS = 100  # runs whose specifications are read; if there are more, addresses are offered without labels


def tasks(context: "CompletionContext") -> list[str]:
    """Return the names of tasks, and the files that may declare a task."""
    return [*words()["tasks"], *_files(context.incomplete, (".toml",))]


def studies(context: "CompletionContext") -> list[str]:
    """Return the names of studies, and the files that may define or vary a study."""
    return [*STUDIES, *_files(context.incomplete, (".py", ".toml"))]


def kinds(context: "CompletionContext") -> list[str]:
    """Return the kinds of models."""
    return list(words()["models"])


def runs(context: "CompletionContext") -> list[tuple[str, str]]:
    """Return the addresses and labels of the runs in the store named on the line, or in the default store."""
    named = context.get("store")
    given = named.raw if named is not None and named.provided else None
    store = Path(given or os.environ.get("ANCHORLAB_STORE") or "runs").expanduser()
    try:
        found = sorted(one.name for one in os.scandir(store) if _ADDRESS.fullmatch(one.name))
    except OSError:
        return []
    fitting = [name for name in found if name.startswith(context.incomplete)]
    return [(name, _label(store / name) if len(fitting) <= _MOST_LABELS else "") for name in fitting]


def _label(run: Path) -> str:
    try:
        label = str(parse_json(read_data(run / "spec.json", _MOST_BYTES)).get("label", ""))
        return printable(label)[:_LONGEST_LABEL]
    except (OSError, ValueError, AttributeError):
        return ""


def _files(begun: str, kinds: tuple[str, ...]) -> Iterable[str]:
    """Return the files with these endings, and the folders, whose paths begin with `begun`; none if it is empty."""
    head, slash, tail = begun.rpartition("/")
    if not begun:
        return []
    try:
        found = sorted(os.scandir(Path(head + slash or ".").expanduser()), key=lambda one: one.name)
        return [
            f"{head}{slash}{one.name}{'/' if one.is_dir() else ''}"
            for one in found
            if one.name.startswith(tail) and not one.name.startswith(".") and (one.is_dir() or one.name.endswith(kinds))
        ]
    except OSError:
        return []


def completion_words(words: Sequence[str]) -> list[str]:
    """Return the words of an unfinished line in the form that the parser knows.

    Options of fields are folded as on a complete line, except the one whose value is being typed.
    """
    begun = 2 if len(words) > 1 and words[-2].startswith("--") and "=" not in words[-2] else 1
    try:
        return [*fold(words[:-begun]), *words[-begun:]]
    except SpecError:
        return list(words)
