"""`anchorlab tasks`."""

import sys

from anchorlab.cli.options import shared
from anchorlab.cli.terminal.output import Rows, hand_out
from anchorlab.papers.words import words


def tasks(*, json: shared.Json = False) -> None:
    """List the tasks that models can be trained on."""
    found = list(words()["tasks"].items())
    if "anchorlab.tasks" in sys.modules:  # a module of the user may have registered more
        from anchorlab.tasks import task_description, task_names

        found = [(name, task_description(name)) for name in task_names()]
    hand_out(json, Rows(("name", "description"), found).data, [Rows(("task", "question"), found)])
