"""`anchorlab export`."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from anchorlab.cli.experiment import read_task
from anchorlab.cli.fields import Fields, as_written, part
from anchorlab.cli.output import Flag, Json, print_json, print_text, waiting


def export(
    task: str,
    /,
    *,
    out: Path,
    format: str = "parquet",
    n: Annotated[int, Parameter(name=("--n", "-n"))] = 1000,
    split: Annotated[list[str] | None, Parameter(negative="")] = None,
    seed: int = 0,
    text: Flag = False,
    task_fields: Annotated[Fields, part("task")] = None,
    json: Json = False,
) -> None:
    """Write a task as data: one file per split, a data card, and the specification that makes it again.

    Parameters
    ----------
    task
        A name from `anchorlab tasks`, or a TOML file that declares a task.
    out
        The folder to write, a new one or an earlier export of the same.
    format
        `parquet`, `jsonl`, or `hf`: a folder that `datasets.load_dataset` reads.
    n
        How many sequences of each split.
    split
        Only this split; give it again for a further one.
    seed
        The seed they are drawn from.
    text
        Add each sequence, the oracle's trace and the answer in words.
    task_fields
        An argument of the task, such as `--task.length 12`.
    json
        What was written as JSON, for scripts.
    """
    from anchorlab.tasks import export as write

    chosen = read_task(task, task_fields)
    with waiting(f"exporting {task}", quiet=json), as_written(["out", "split"], {"out": "folder", "split": "splits"}):
        folder = write(chosen, out, format, n, split, seed, text)
    splits = list(chosen.splits) if split is None else [name for name in chosen.splits if name in split]
    if json:
        files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
        print_json({"task": task, "folder": str(folder), "format": format, "splits": splits, "n": n, "files": files})
        return
    print_text(f"{n} sequence{'' if n == 1 else 's'} each of {', '.join(splits)} in {folder}", wrapped=False)
    print_text(f"what they are: {folder / 'README.md'}", wrapped=False)
