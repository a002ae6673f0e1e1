"""Run directories: runs open for writing, by the one process that holds the lock of the store."""

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anchorlab.errors import StoreError
from anchorlab.plain import discard
from anchorlab.runs.atomic_files import (
    check_named_file,
    damaged,
    fingerprint,
    remove_temporaries,
    write_file,
    write_json,
)
from anchorlab.runs.cell import Cell
from anchorlab.runs.environment import environment
from anchorlab.runs.lock import locked
from anchorlab.runs.metrics import metrics_bytes
from anchorlab.runs.names import checkpoint_name, write_manifest
from anchorlab.runs.run import Run
from anchorlab.runs.tensor_file import tensor_pieces

if TYPE_CHECKING:
    import polars
    import torch
    from jaxtyping import Shaped

LOCK = "lock"
"""The name of a store's lock, which is held while runs are trained or removed."""


class RunDirectory(Run):
    """A run that can be written: created by `Store.open`, opened by `with`, which takes the lock of the store.

    A trainer uses it as follows; a kill at any moment loses only the work since the last state:

        with store.open(cell) as run:
            if not run.finished:
                plan = run.plan([[0, 1], [2]])          # a resumed run keeps its first plan
                for index in range(len(plan)):
                    with run.chunk(index) as chunk:     # here or in another process, which takes no lock
                        if not chunk.finished:
                            state = chunk.latest_state()
                            ...                         # write_checkpoint and write_state in turn
                            chunk.finish(rows)
                ...                                     # run.write_checkpoint(step, stacked weights)
                run.finish(metrics, checkpoints=[step])

    A finished run is opened without the lock and can no longer be written.
    """

    def __init__(self, path: Path, cell: Cell) -> None:
        super().__init__(path)
        self._new_cell = cell
        self._held: ExitStack | None = None  # the lock, while the run is open

    def __enter__(self) -> "RunDirectory":
        """Take the lock and prepare the directory; a finished run is opened without the lock.

        Errors: `InUseError` that names the process that holds the lock; `StoreError` for a damaged or missing file.
        """
        if self._held is not None:
            raise StoreError(f"{self.path}: already open in this process; close it first")
        if self.finished and not os.path.lexists(self.state_path):
            return self
        with ExitStack() as held:
            held.enter_context(locked(self.path.parent / LOCK))
            self._prepare()
            self._held = held.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        if self._held is not None:
            held, self._held = self._held, None
            held.close()

    def plan(self, default: Any) -> Any:
        """Return the recorded division into chunks, or record and return `default` if there is none.

        The plan can be any JSON data. Chunks are numbered from 0.
        """
        self._require_open()
        if not self.plan_path.exists():
            if any(self.state_path.glob("chunk-*")):
                raise damaged(self.plan_path, "missing", self.address)
            write_json(self.state_path, self.plan_path.name, {"plan": default})
        return self.recorded_plan()

    def has_checkpoint(self, step: int) -> bool:
        """Return whether an unfinished merge has already written the checkpoint of `step`."""
        return (self.path / checkpoint_name(step)).is_file()

    def write_checkpoint(self, step: int, tensors: "Mapping[str, Shaped[torch.Tensor, 'member ...']]") -> None:
        """Write the weights of all members at `step`, each tensor `[member ...]`, once all chunks are finished.

        The checkpoint survives if the process ends before `finish`, so the chunks' checkpoints can be removed.
        """
        self._require_open()
        path = self.path / checkpoint_name(step)
        path.parent.mkdir(exist_ok=True)
        write_file(path.parent, path.name, tensor_pieces(tensors))

    def move_checkpoint(self, step: int, file: Path) -> None:
        """Move the only chunk's checkpoint at `step` into place as the checkpoint of the run, unless it is damaged."""
        self._require_open()
        path = self.path / checkpoint_name(step)
        check_named_file(file)
        try:
            path.parent.mkdir(exist_ok=True)
            file.replace(path)
        except OSError as error:
            raise StoreError(f"{path}: cannot be written: {error.strerror}") from error

    def finish(
        self, metrics: "polars.DataFrame", made_by: Sequence[Mapping[str, Any]] = (), *, checkpoints: Iterable[int]
    ) -> None:
        """Write the table of metrics and the manifest, and remove the states and all other checkpoints.

        Args:
            metrics: the table of metrics
            made_by: as `Run.made_by`
            checkpoints: the steps of the checkpoints to keep, which have been written

        Errors: `ValueError` for a table without the columns of `metrics_schema`.
        """
        self._require_open()
        written = {name: fingerprint(self.path / name) for name in map(checkpoint_name, sorted(checkpoints))}
        name = self.metrics_path.name
        written[name] = write_file(self.path, name, [metrics_bytes(metrics)])[1]
        record = {**self.record, "made_by": list(made_by)}
        written[self.spec_path.name] = write_json(self.path, self.spec_path.name, record)
        write_manifest(self.path, written)
        self._drop_reading()
        self._clear()

    def _clear(self) -> None:
        """Remove what a finished run no longer needs; the states last, whose presence makes the next opening go on."""
        for path in (self.path / "checkpoints").glob("*"):
            if f"checkpoints/{path.name}" not in self.files:
                discard(path)
        discard(self.path / LOCK)  # a run of version 0.2 had a lock of its own
        shutil.rmtree(self.state_path, ignore_errors=True)

    def _prepare(self) -> None:
        """Write `spec.json`, or add this environment to it; remove the temporary files of a killed writer."""
        self._drop_reading()
        remove_temporaries(self.path)
        if self.finished:
            self._clear()
            return
        self._check_manifest_was_not_lost()
        if self.state_path.exists() or self.spec_path.exists():
            record = dict(self.record)
        else:
            cell = self._new_cell
            record = {"address": cell.address, "label": cell.label, "spec": cell.spec, "environments": []}
            self.path.mkdir(exist_ok=True)
        if environment() not in record["environments"]:
            record["environments"] = [*record["environments"], environment()]
            write_json(self.path, self.spec_path.name, record)
            self._drop_reading()
        remove_temporaries(self.path / "checkpoints")
        self.state_path.mkdir(exist_ok=True)
        remove_temporaries(self.state_path)

    def _drop_reading(self) -> None:
        for name in ("cell", "record", "files"):  # of files that have changed since they were read
            self.__dict__.pop(name, None)

    def _require_open(self) -> None:
        """Raise an error unless this process has the run open: `StoreError` if it is finished, else `RuntimeError`."""
        if self.finished:
            raise StoreError(f"{self.path}: finished, cannot be written; remove it to train it again")
        if self._held is None:
            raise RuntimeError(f"{self.path} is not open for writing: use `with store.open(cell) as run:`")
