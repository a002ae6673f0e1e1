"""The names and words of tasks, models and claims, as the package ships them: listing them imports none.

`make words` writes the file `words.json`, and a test compares it with the tasks, models and studies.
"""

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anchorlab.names import STUDIES

if TYPE_CHECKING:
    from anchorlab.findings.statements import Statements

FILE = Path(__file__).with_name("words.json")


@cache
def words() -> dict[str, Any]:
    """Return the descriptions of our tasks by name, the kinds of our models, and the claims of our studies by name."""
    found: dict[str, Any] = json.loads(FILE.read_text("utf-8"))
    return found


@cache
def statements() -> "dict[str, Statements]":
    """Return the claims of every study, by its name, without importing a study."""
    from pydantic import TypeAdapter

    from anchorlab.findings.statements import Statements

    return TypeAdapter(dict[str, Statements]).validate_python(words()["studies"])


def words_of_today() -> str:
    """Return the text that `words.json` should have; every task, model and study is imported for it."""
    from pydantic import TypeAdapter

    from anchorlab.findings.statements import Statements
    from anchorlab.models import ModelSpec
    from anchorlab.studies import study
    from anchorlab.tasks import task_description, task_names
    from anchorlab.tasks.registry import task_factory

    ours = [name for name in task_names() if task_factory(name)[0].__module__.startswith("anchorlab.")]
    kinds = (kind for kind, spec in ModelSpec.registry.items() if spec.__module__.startswith("anchorlab."))
    claims = {name: study(name).statements for name in STUDIES}
    adapter = TypeAdapter(dict[str, Statements])
    found = {
        "tasks": {name: task_description(name) for name in ours},
        "models": sorted(kinds),
        "studies": adapter.dump_python(claims, mode="json", exclude_defaults=True),
    }
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(words_of_today(), "utf-8")
