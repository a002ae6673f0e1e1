"""`anchorlab tasks`."""

from anchorlab.cli.output import print_json, print_table
from anchorlab.tasks import task_names
from anchorlab.tasks.registry import task_description


def tasks(*, json: bool = False) -> None:
    """List the tasks there are.

    Parameters
    ----------
    json
        As JSON, for scripts.
    """
    found = [(name, task_description(name)) for name in task_names()]
    if json:
        print_json([{"name": name, "description": text} for name, text in found])
    else:
        print_table(("task", "what it asks"), found)
