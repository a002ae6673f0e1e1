"""Export tasks as data: one file per split and a data card, with the same bytes for the same arguments."""

import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.spec import check_known
from anchorlab.tasks.batch import Batch, Example
from anchorlab.tasks.export.card import CARD, RIVAL, SPECIFICATION, Card, Part, card_text
from anchorlab.tasks.export.lm_eval import LM_EVAL, check_questions, harness_files, question_frame
from anchorlab.tasks.export.toml_text import toml_text
from anchorlab.tasks.retrieval.prompts import RetrievalPrompts
from anchorlab.tasks.task import Task

if TYPE_CHECKING:
    import polars

_PLACES = {"parquet": "{}.parquet", "jsonl": "{}.jsonl", "hf": "data/{}-00000-of-00001.parquet", LM_EVAL: "{}.jsonl"}
FORMATS = tuple(_PLACES)
"""`parquet` and `jsonl` write one file per split; `hf` writes a folder that `datasets.load_dataset` reads;
`lm-eval` writes questions in words, with tasks for lm-evaluation-harness."""

_MOST = 10_000_000  # maximum number of rows per split
_EXAMPLES = 2  # per split, on the data card


def export(
    task: Task,
    folder: str | Path,
    format: str = "parquet",
    n: int = 1000,
    splits: Sequence[str] | None = None,
    seed: int = 0,
    text: bool = False,
) -> Path:
    """Write `n` sequences of each split, a data card `README.md` and the task's specification `specification.toml`.

    The rows of a split are the sequences of `task.sample(split, n, seed)`, in order. The folder appears complete or not
    at all. An earlier export with the same arguments is overwritten.

    Args:
        task: draws the sequences
        folder: where to write; created if it does not exist
        format: one of `FORMATS`
        n: rows per split
        splits: the splits to write; None: all. In file names, characters other than letters, digits and `_` become `_`
        text: whether to add each sequence, the oracle's trace and the answer in words; this takes much longer

    Returns: the absolute path of the folder.

    >>> export(task("anchor/identity"), "identity", "hf", n=100)  # doctest: +SKIP

    Errors: `SpecError` for an unknown format or split, fewer than 1 row, splits or rivals whose names differ only in
    such characters, a folder that holds other files, and for `lm-eval` if the task has no questions in words or `text`
    is set.
    """
    names = _check(task, format, n, splits, text)
    folder = Path(folder).absolute()
    places = {name: _PLACES[format].format(_file_name(name)) for name in names}
    further = harness_files(task, places) if format == LM_EVAL else {}
    expected = {*places.values(), *further, CARD, SPECIFICATION}
    _check_folder(folder, expected)
    specification = toml_text(task)
    existing = next(parent for parent in folder.parents if parent.exists())
    temporary = existing / f".{folder.name}-{secrets.token_hex(8)}.tmp"
    try:
        temporary.mkdir()
        parts = []
        for name in names:
            batch = task.sample(name, n, seed)
            if format == LM_EVAL and isinstance(task, RetrievalPrompts):
                frame = question_frame(task, name, n, seed)
            else:
                frame = split_frame(task, batch, text)
            _write_frame(frame, temporary / places[name])
            examples = tuple(task.render(batch.inputs[:_EXAMPLES]))
            parts.append(_part(name, frame, examples, temporary, places[name]))
        card = Card(task, specification, format, n, seed, text, tuple(parts))
        for place, written in {**further, SPECIFICATION: specification, CARD: card_text(card)}.items():
            (temporary / place).write_text(written, encoding="utf-8", newline="\n")
        _put_in_place(temporary, folder, expected)
    except OSError as error:
        problem = f"{folder} cannot be written: {error.strerror or error}"
        raise SpecError("folder", problem, "name a folder that you may write to") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


def split_frame(task: Task, batch: Batch, text: bool = False) -> "polars.DataFrame":
    """Return the rows of a batch as a table with the columns that the data card explains."""
    import polars as pl

    scored = batch.targets.shape[:2]
    columns = {
        "inputs": _lists(batch.inputs),
        "positions": _lists(batch.positions.expand(scored)),
        "targets": _lists(batch.targets),
        "answers": _lists(batch.answers),
    }
    if batch.weights is not None:
        columns["weights"] = _lists(batch.weights)
    columns |= {f"{RIVAL}{_file_name(name)}": _lists(values) for name, values in batch.rivals.items()}
    if sum(column.startswith(RIVAL) for column in columns) < len(batch.rivals):
        raise SpecError("rivals", f"{list(batch.rivals)} would have columns of the same name", "name them apart")
    frame = pl.DataFrame([values.alias(name) for name, values in columns.items()])
    group = np.zeros(len(batch), dtype=np.int64) if batch.group is None else batch.group.numpy()
    frame = frame.with_columns(
        split=pl.lit(batch.split), group=pl.Series(batch.groups, dtype=pl.String).gather(pl.Series(group))
    )
    if not text:
        return frame
    examples = task.render(batch.inputs)
    return frame.with_columns(
        text=pl.Series([example.text for example in examples], dtype=pl.String),
        trace=pl.Series(["; ".join(example.trace) for example in examples], dtype=pl.String),
        answer_text=pl.Series([example.answer for example in examples], dtype=pl.String),
    )


def _lists(values: Tensor) -> "polars.Series":
    """Return values `[batch ...]` as a column of lists, nested once for each further axis."""
    import polars as pl

    array = values.numpy()
    kind: Any = pl.Series(array[:0].reshape(-1)).dtype
    for _ in range(array.ndim - 1):
        kind = pl.List(kind)
    return pl.Series(np.ascontiguousarray(array)).cast(kind)


def _write_frame(frame: "polars.DataFrame", path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    if path.suffix == ".jsonl":
        frame.write_ndjson(path)
        return
    # All options that affect the bytes are fixed here, so that new defaults of polars do not change the files.
    frame.rechunk().write_parquet(
        path, compression="zstd", compression_level=3, statistics=True, row_group_size=2**16, data_page_size=2**20
    )


def _part(name: str, frame: "polars.DataFrame", examples: tuple[Example, ...], root: Path, place: str) -> Part:
    with (root / place).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        size = file.tell()
    groups = frame["group"].value_counts().sort("group")
    return Part(
        split=name,
        file_name=_file_name(name),
        place=place,
        rows=frame.height,
        distinct=frame.to_series(0).n_unique(),
        groups=dict(groups.rows()),
        columns={column: _type_name(kind) for column, kind in frame.schema.items()},
        examples=examples,
        size=size,
        sha256=digest,
    )


def _type_name(kind: Any) -> tuple[str, ...]:
    """Return a column's type from the outside in, such as `("list", "int64")`."""
    import polars as pl

    if isinstance(kind, pl.List):
        return ("list", *_type_name(kind.inner))
    return ("string" if kind == pl.String else str(kind).lower(),)


def _check(task: Task, format: str, n: int, splits: Sequence[str] | None, text: bool) -> list[str]:
    """Check the arguments of `export`; return the splits to write, in the task's order. Errors: as `export`."""
    check_known("format", format, FORMATS, "format")
    if format == LM_EVAL:
        check_questions(task, text)
    if not 1 <= n <= _MOST:
        raise SpecError("n", f"cannot write {n} sequences of a split", f"ask for 1 to {_MOST}")
    for name in splits or ():
        task.check_draw(name, n)
    if splits is not None and not splits:
        raise SpecError("splits", "is empty", "name one, or leave it out for all")
    names = [name for name in task.splits if splits is None or name in splits]
    if len({_file_name(name) for name in names}) < len(names):
        raise SpecError("splits", f"{names} would have files of the same name", "write them one by one")
    return names


def _file_name(split: str) -> str:
    """Replace all characters of a split's name except letters, digits and underscores by underscores."""
    return re.sub(r"[^A-Za-z0-9_]", "_", split)


def _check_folder(folder: Path, expected: set[str]) -> None:
    """Raise `SpecError` if the folder holds anything but an earlier export, or cannot be created."""
    if folder.exists() and not folder.is_dir():
        raise SpecError("folder", f"{folder} is a file", "name a folder")
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        raise SpecError("folder", f"{folder} cannot be written", "name a folder that you may write to")
    other = sorted(_files(folder) - expected) if folder.is_dir() else []
    if other:
        raise SpecError("folder", f"{folder} holds other files, such as {other[0]}", "name a new folder")
    if folder.is_dir() and _files(folder) and not (folder / CARD).is_file():
        raise SpecError("folder", f"{folder} holds files but no {CARD} that describes them", "name a new folder")


def _files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}


def _put_in_place(temporary: Path, folder: Path, expected: set[str]) -> None:
    """Rename the temporary folder to its final name, or replace the files of an earlier, equal export."""
    if not folder.is_dir() or not any(folder.iterdir()):
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary.rename(folder)
        return
    if not (folder / CARD).is_file() or (folder / CARD).read_bytes() != (temporary / CARD).read_bytes():
        raise SpecError("folder", f"{folder} holds another export", "remove it, or name a new folder")
    for name in sorted(expected):
        (folder / name).parent.mkdir(exist_ok=True)
        (temporary / name).replace(folder / name)
