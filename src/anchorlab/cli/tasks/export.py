"""`anchorlab export`."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from anchorlab.cli.options import shared
from anchorlab.cli.options.experiment import read_task
from anchorlab.cli.options.fields import as_written
from anchorlab.cli.terminal.output import counted, print_json, print_text, waiting


def export(
    task: shared.TaskName,
    /,
    *,
    out: Path,
    format: str = "parquet",
    n: shared.Count = 1000,
    split: Annotated[list[str] | None, Parameter(negative="")] = None,
    seed: int = 0,
    text: shared.Flag = False,
    task_fields: shared.TaskFields = None,
    json: shared.Json = False,
) -> None:
    """Export a task as data: one file per split, a data card, and the specification that generates it again.

    Parameters
    ----------
    out
        Folder to write: a new one, or an earlier export of the same task.
    format
        `parquet`, `jsonl`, `hf` (a folder that `datasets.load_dataset` reads), or `lm-eval` (questions in words with
        tasks for lm-evaluation-harness; for `retrieval/equations` and the other formulations).
    n
        Number of sequences per split.
    split
        Export only this split; repeat the option for several. By default all.
    seed
        Seed of the sequences.
    text
        Add each sequence, its answer and the derivation of the answer in words.
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
    print_text(f"{counted(n, 'sequence')} each of {', '.join(splits)} in {folder}", wrapped=False)
    print_text(f"data card: {folder / 'README.md'}", wrapped=False)
