"""`anchorlab tasks`."""

from anchorlab.cli.options import shared
from anchorlab.cli.terminal.output import print_json, print_table


def tasks(*, json: shared.Json = False) -> None:
    """List the tasks that models can be trained on."""
    from anchorlab.tasks import task_description, task_names

    found = [(name, task_description(name)) for name in task_names()]
    if json:
        print_json([{"name": name, "description": text} for name, text in found])
    else:
        print_table(("task", "question"), found)
