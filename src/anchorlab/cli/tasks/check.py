"""`anchorlab check`."""

from anchorlab.cli.options import shared
from anchorlab.cli.options.experiment import read_task
from anchorlab.cli.terminal.output import hand_out, waiting


def check(task: shared.TaskName, /, *, task_fields: shared.TaskFields = None, json: shared.Json = False) -> int:
    """Check that the splits of a task are separate, and show the proof; exit with 1 if they are not."""
    chosen = read_task(task, task_fields)
    with waiting(f"checking {task}", quiet=json):
        proof = chosen.proof()
    found = {"method": proof.method, "holds": proof.holds, "words": list(proof.words), "numbers": proof.numbers}
    outcome = "holds" if proof.holds else "does not hold"
    hand_out(json, lambda: {"task": task, **found}, [*proof.words, outcome])
    return 0 if proof.holds else 1
