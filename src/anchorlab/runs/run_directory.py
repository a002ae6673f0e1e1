"""Run directories: runs open for writing, by one process at a time."""

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anchorlab.errors import StoreError
from anchorlab.runs.cell import Cell
from anchorlab.runs.chunk_directory import ChunkDirectory
from anchorlab.runs.environment import environment
from anchorlab.runs.files import (
    Fingerprint,
    damaged,
    read_json,
    remove_temporaries,
    write_file,
    write_json,
)
from anchorlab.runs.lock import Lock
from anchorlab.runs.metrics import metrics_bytes
from anchorlab.runs.run import Run, checkpoint_name
from anchorlab.runs.tensor_file import tensor_pieces

if TYPE_CHECKING:
    import polars
    import torch


class RunDirectory(Run):
    """A run that can be written: created by `Store.open`, opened by `with`.

    A trainer uses it as follows; a kill at any moment loses only the work since the last state:

        with store.open(cell) as run:
            if not run.finished:
                plan = run.plan([[0, 1], [2]])          # a resumed run returns the plan it began with
                for index in range(len(plan)):
                    with run.chunk(index) as chunk:     # here or in other processes
                        if not chunk.finished:
                            state = chunk.latest_state()
                            ...                         # write_checkpoint and write_state in turn
                            chunk.finish(rows)
                ...                                     # run.write_checkpoint(step, stacked parts)
                run.finish(metrics)

    A finished run is opened without a lock and can no longer be written.
    """

    def __init__(self, path: Path, cell: Cell, wait: float = 0.0) -> None:
        super().__init__(path)
        self._new_cell, self.wait = cell, wait
        self._lock = Lock(path / "lock")
        self._written: dict[str, Fingerprint] = {}
        self._opened_finished = False

    @property
    def finished(self) -> bool:
        """Whether the run is complete; while it is open, only `finish` changes this."""
        # A finished run is open without a lock, so another process may remove it; readers notice that.
        return self._opened_finished or super().finished

    def __enter__(self) -> "RunDirectory":
        """Take the lock, and remove the partial files of a killed writer.

        Errors: `StoreError` that names the process writing the run, or a damaged or missing file.
        """
        self._opened_finished = super().finished
        if self._opened_finished and not self.state_path.exists():
            return self
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{self.path.parent}: cannot be created: {error.strerror}") from error
        try:
            self._lock.acquire(self.wait)
        except StoreError:
            if self._opened_finished:  # its writer has written the manifest and is about to release the lock
                return self
            raise
        try:
            self._prepare()
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._opened_finished = False
        self._lock.release()

    def plan(self, default: Any) -> Any:
        """Return the recorded division into chunks, or record and return `default` if there is none.

        The plan is any JSON data. Chunks are numbered from 0.
        """
        self._require_lock()
        if self.plan_path.exists():
            return read_json(self.plan_path, self.address)["plan"]
        if any(self.state_path.glob("chunk-*")):
            raise damaged(self.plan_path, "missing", self.address)
        write_json(self.state_path, self.plan_path.name, {"plan": default})
        return read_json(self.plan_path, self.address)["plan"]

    def chunk(self, index: int) -> ChunkDirectory:
        """Return the directory of a chunk, to be opened here or in another process."""
        return ChunkDirectory(self.state_path / f"chunk-{index:04d}", self.address, self.wait)

    def write_checkpoint(self, step: int, tensors: Mapping[str, "torch.Tensor"]) -> None:
        """Write the weights of all members at `step`, each tensor `[member ...]`, once all chunks are finished.

        If the process ends before `finish`, the checkpoint is discarded and must be written again.
        """
        self._require_lock()
        name = checkpoint_name(step)
        directory = self.path / Path(name).parent
        directory.mkdir(exist_ok=True)
        self._written[name] = write_file(directory, Path(name).name, tensor_pieces(tensors))[1]

    def finish(self, metrics: "polars.DataFrame") -> None:
        """Write the table of metrics and the manifest, and remove the states.

        Errors: `ValueError` for a table without the columns of `metrics_schema`.
        """
        self._require_lock()
        name = "metrics.parquet"
        self._written[name] = write_file(self.path, name, [metrics_bytes(metrics)])[1]
        self._written[self.spec_path.name] = write_json(self.path, self.spec_path.name, self._record)
        files = {name: {"size": size, "sha256": sha256} for name, (size, sha256) in self._written.items()}
        write_json(self.path, self.manifest_path.name, {"files": files})
        self._drop_reading()
        self._clear()

    def _clear(self) -> None:
        """Remove what a finished run no longer needs."""
        shutil.rmtree(self.state_path, ignore_errors=True)
        self._lock.remove()

    def _prepare(self) -> None:
        """Write `spec.json` if the run is new, and remove what a killed writer left, except states."""
        remove_temporaries(self.path)
        self._opened_finished = super().finished
        if self._opened_finished:
            self._clear()
            self._lock.release()
            return
        self._written.clear()
        self._drop_reading()
        self._check_manifest_was_not_lost()
        if self.state_path.exists() or self.spec_path.exists():
            self._note_environment()
        else:
            cell = self._new_cell
            record = {"address": cell.address, "label": cell.label, "spec": cell.spec, "environments": [environment()]}
            write_json(self.path, self.spec_path.name, record)
        # Results of an unfinished merge; the chunks still have everything.
        shutil.rmtree(self.path / "checkpoints", ignore_errors=True)
        (self.path / "metrics.parquet").unlink(missing_ok=True)
        self.state_path.mkdir(exist_ok=True)
        remove_temporaries(self.state_path)

    def _note_environment(self) -> None:
        """Record the environment of a run that is resumed in a new one."""
        if environment() not in self.environments:
            record = {**self._record, "environments": [*self.environments, environment()]}
            write_json(self.path, self.spec_path.name, record)
            self._drop_reading()

    def _drop_reading(self) -> None:
        """Forget what was read from files that have changed since."""
        for name in ("cell", "_record", "_files"):
            self.__dict__.pop(name, None)

    def _require_lock(self) -> None:
        """Raise `StoreError` for a finished run, and `RuntimeError` unless the run is open for writing."""
        if self.finished:
            raise StoreError(f"{self.path}: finished, cannot be written; remove it to train it again")
        if not self._lock.held:
            raise RuntimeError(f"{self.path} is not open for writing: use `with store.open(cell) as run:`")


def is_address(name: str) -> bool:
    """Return whether a directory's name is an address."""
    return re.fullmatch(r"[0-9a-f]{20}", name) is not None
