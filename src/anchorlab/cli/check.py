"""`anchorlab check`."""

from typing import Annotated

from anchorlab.cli.complete import TaskName
from anchorlab.cli.experiment import read_task
from anchorlab.cli.fields import Fields, part
from anchorlab.cli.output import Json, print_json, print_text, waiting


def check(task: TaskName, /, *, task_fields: Annotated[Fields, part("task")] = None, json: Json = False) -> int:
    """Check that the splits of a task are separate, and show the proof; exit with 1 if they are not.

    Parameters
    ----------
    task
        Name from `anchorlab tasks`, or a TOML file that declares a task.
    task_fields
        Argument of the task, such as `--task.length 12`.
    json
        Print JSON.
    """
    chosen = read_task(task, task_fields)
    with waiting(f"checking {task}", quiet=json):
        proof = chosen.proof()
    if json:
        found = {"method": proof.method, "holds": proof.holds, "words": list(proof.words), "numbers": proof.numbers}
        print_json({"task": task, **found})
    else:
        for words in proof.words:
            print_text(words)
        print_text("holds" if proof.holds else "does not hold")
    return 0 if proof.holds else 1
