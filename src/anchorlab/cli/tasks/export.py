"""`anchorlab export`."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from anchorlab.cli.options import shared
from anchorlab.cli.options.experiment import read_task
from anchorlab.cli.options.fields import as_written
from anchorlab.cli.terminal.output import counted, print_json, print_text, waiting
from anchorlab.errors import SpecError

_COMPILED = "compiled:"
_WHAT = (
    "Name from `anchorlab tasks`, or a TOML file that declares a task; or `compiled:identity`,"
    " `compiled:identity/backup` or, in quotes, `compiled:*`."
)


def export(
    task: Annotated[shared.TaskName, Parameter(help=_WHAT)],
    /,
    *,
    out: Path,
    format: str = "parquet",
    n: shared.Count = 1000,
    split: Annotated[list[str] | None, Parameter(negative="")] = None,
    seed: int = 0,
    text: shared.Flag = False,
    unrotated: shared.Flag = False,
    task_fields: shared.TaskFields = None,
    json: shared.Json = False,
) -> None:
    """Export a task as data: one file per split, a data card, and the specification that generates it again.

    `compiled:NAME` exports compiled models instead, so that other methods can rank their units. It writes the models
    with pairs of sequences, and the truth in a separate folder, which `anchorlab score` compares with the rankings.

    Parameters
    ----------
    out
        Folder to write: a new one, or an earlier export of the same task.
    format
        `parquet`, `jsonl`, `hf` (a folder that `datasets.load_dataset` reads), or `lm-eval` (questions in words, with
        tasks for lm-evaluation-harness; only for `retrieval/equations` and the other formulations).
    n
        Number of sequences per split, or of pairs of sequences for each compiled model.
    split
        Export only this split; repeat the option for several. By default all.
    seed
        Seed of the sequences; for compiled models also the seed of their basis, ids and order of heads.
    text
        Add each sequence, its answer and the derivation of the answer in words.
    unrotated
        Leave compiled models in the basis in which their weights are written, instead of a random one.
    """
    if task.startswith(_COMPILED):
        given = {"format": format != "parquet", "split": split, "text": text, "task": task_fields}
        for option in (name for name, value in given.items() if value):
            raise SpecError(option, "has no effect on compiled models", "leave it out")
        _export_models(task.removeprefix(_COMPILED), out, n, not unrotated, seed, json)
        return
    if unrotated:
        raise SpecError("unrotated", "has no effect on a task", "leave it out")
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


def _export_models(pattern: str, out: Path, n: int, rotated: bool, seed: int, json: bool) -> None:
    from anchorlab.truth import export_models

    doing = "writing models, and measuring every subset of their units"
    short = {"out": "folder", "n": "pairs", "task": "models"}
    with waiting(doing, quiet=json), as_written([*short], short):
        ids = export_models(out, pattern, pairs=n, rotated=rotated, seed=seed)
    folder = out.absolute()
    if json:
        print_json({"folder": str(folder), "models": ids, "pairs": n, "rotated": rotated, "seed": seed})
        return
    print_text(f"{counted(len(ids), 'model')} with {counted(n, 'pair')} each in {folder / 'models'}", wrapped=False)
    print_text(f"truth, to keep apart: {folder / 'truth'}", wrapped=False)
