"""Run directories: runs open for writing, by one process at a time."""

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anchorlab.errors import InUseError, StoreError
from anchorlab.plain import discard
from anchorlab.runs.atomic_files import (
    Fingerprint,
    check_file,
    damage_in,
    damaged,
    fingerprint,
    make_directory,
    read_json,
    remove_temporaries,
    sync_directory,
    write_file,
    write_json,
)
from anchorlab.runs.cell import Cell
from anchorlab.runs.chunk_directory import ChunkDirectory
from anchorlab.runs.environment import environment
from anchorlab.runs.lease import LEASE
from anchorlab.runs.lock import Lock
from anchorlab.runs.metrics import metrics_bytes
from anchorlab.runs.names import checkpoint_name, listed_files
from anchorlab.runs.run import Run
from anchorlab.runs.tensor_file import tensor_pieces

if TYPE_CHECKING:
    import polars
    import torch
    from jaxtyping import Shaped

_NOTE = re.compile(r"[0-9]{1,18}\.json")


class RunDirectory(Run):
    """A run that can be written: created by `Store.open`, opened by `with`.

    A trainer uses it as follows; a kill at any moment loses only the work since the last state:

        with store.open(cell) as run:
            if not run.finished:
                plan = run.plan([[0, 1], [2]])          # a resumed run keeps its first plan
                for index in range(len(plan)):
                    with run.chunk(index) as chunk:     # here or in other processes; the run need not be open
                        if not chunk.finished:
                            state = chunk.latest_state()
                            ...                         # write_checkpoint and write_state in turn
                            chunk.finish(rows)
                ...                                     # run.write_checkpoint(step, stacked parts)
                run.finish(metrics)

    A finished run is opened without a lock and can no longer be written.
    """

    def __init__(self, path: Path, cell: Cell, wait: float = 0.0, lease: float = LEASE) -> None:
        super().__init__(path)
        self._new_cell, self.wait, self.lease = cell, wait, lease
        self._lock = Lock(path / "lock", lease)
        self._written: dict[str, Fingerprint] = {}
        self._opened_finished = False

    @property
    def finished(self) -> bool:
        """Whether the run is complete; while it is open, only `finish` changes this."""
        # A finished run is open without a lock, so another process may remove it; readers then raise an error.
        return self._opened_finished or super().finished

    def __enter__(self) -> "RunDirectory":
        """Take the lock and prepare the directory; a finished run is opened without a lock.

        Errors: `InUseError` that names the process writing the run; `StoreError` for a damaged or missing file.
        """
        self._opened_finished = super().finished
        if self._opened_finished and not os.path.lexists(self.state_path):
            return self
        try:
            make_directory(self.path.parent)
        except OSError as error:
            raise StoreError(f"{self.path.parent}: cannot be created: {error.strerror}") from error
        try:
            self._lock.acquire(self.wait)
        except InUseError:
            if self._opened_finished:  # its writer has written the manifest and is about to release the lock
                return self
            raise
        try:
            self._prepare()
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Release the lock. Errors: `InUseError`, in place of a file error, if another process took over the run."""
        lost = self._lock.lost
        self._opened_finished = False
        self._lock.release()
        if lost and isinstance(error, StoreError | OSError):
            raise InUseError(f"{self.path}: taken over by another process") from error

    def plan(self, default: Any) -> Any:
        """Return the recorded division into chunks, or record and return `default` if there is none.

        The plan can be any JSON data. Chunks are numbered from 0.
        """
        self._require_lock()
        if self.plan_path.exists():
            return self.recorded_plan()
        if any(self.state_path.glob("chunk-*")):
            raise damaged(self.plan_path, "missing", self.address)
        write_json(self.state_path, self.plan_path.name, {"plan": default})
        return self.recorded_plan()

    def chunk(self, index: int) -> ChunkDirectory:
        """Return the directory of a chunk, to be opened here or in another process."""
        return ChunkDirectory(self.state_path / f"chunk-{index:04d}", self.address, self.wait, self.lease)

    def has_checkpoint(self, step: int) -> bool:
        """Return whether an unfinished merge has already written the checkpoint of `step`."""
        return checkpoint_name(step) in self._written

    def write_checkpoint(self, step: int, tensors: "Mapping[str, Shaped[torch.Tensor, 'member ...']]") -> None:
        """Write the weights of all members at `step`, each tensor `[member ...]`, once all chunks are finished.

        The checkpoint survives if the process ends before `finish`, so its parts in the chunks can be removed.
        """
        self._require_lock()
        path = self.path / checkpoint_name(step)
        make_directory(path.parent)
        self._note_checkpoint(step, write_file(path.parent, path.name, tensor_pieces(tensors))[1])

    def move_checkpoint(self, step: int, part: Path) -> None:
        """Move the only chunk's checkpoint at `step`, an undamaged file, into place as the checkpoint of the run."""
        self._require_lock()
        path = self.path / checkpoint_name(step)
        try:
            make_directory(path.parent)
            self._note_checkpoint(step, fingerprint(part))
            part.replace(path)
            sync_directory(path.parent)
        except OSError as error:
            raise StoreError(f"{path}: cannot be written: {error.strerror}") from error

    def _note_checkpoint(self, step: int, found: Fingerprint) -> None:
        make_directory(self._merged_path)
        write_json(self._merged_path, f"{step}.json", {"size": found.size, "sha256": found.sha256})
        self._written[checkpoint_name(step)] = found

    @property
    def _merged_path(self) -> Path:
        """The directory with the fingerprints of the checkpoints that a merge has written."""
        return self.state_path / "merged"

    def _keep_merged_checkpoints(self) -> None:
        """Find the checkpoints of an unfinished merge.

        Others stay until the run is finished: a process that was stopped here beyond its lease would remove them from
        a run that another process has finished meanwhile.

        Errors: `StoreError` for a damaged checkpoint or note.
        """
        for note in self._merged_path.glob("[!.]*.json"):
            name = checkpoint_name(int(note.stem)) if _NOTE.fullmatch(note.name) else ""
            with damage_in(note, self.address):
                written = listed_files({"files": {name: read_json(note, self.address)}})[name]
            if (self.path / name).exists():  # else it was about to be moved, and its part is there
                check_file(self.path / name, written, self.address)
                self._written[name] = written

    def finish(self, metrics: "polars.DataFrame", made_by: Sequence[Mapping[str, Any]] = ()) -> None:
        """Write the table of metrics and the manifest, and remove the states; see `Run.made_by` for `made_by`.

        Errors: `ValueError` for a table without the columns of `metrics_schema`.
        """
        self._require_lock()
        name = "metrics.parquet"
        self._written[name] = write_file(self.path, name, [metrics_bytes(metrics)])[1]
        self._require_lock()
        self._written[self.spec_path.name] = write_json(
            self.path, self.spec_path.name, {**self._record, "made_by": list(made_by)}
        )
        files = {name: {"size": size, "sha256": sha256} for name, (size, sha256) in self._written.items()}
        self._require_lock()
        write_json(self.path, self.manifest_path.name, {"files": files})
        self._drop_reading()
        self._clear()

    def _clear(self) -> None:
        """Remove what a finished run no longer needs.

        The states are removed last: if the writer is killed before that, their presence makes the next opening clear
        the run.
        """
        for path in (self.path / "checkpoints").glob("*"):
            if f"checkpoints/{path.name}" not in self._files:
                discard(path)
        self._lock.remove()
        shutil.rmtree(self.state_path, ignore_errors=True)

    def _prepare(self) -> None:
        """Write `spec.json` if the run is new, and remove the temporary files of a killed writer.

        A run that was finished meanwhile is cleared, and its lock released.
        """
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
            sync_directory(self.path.parent)  # taking the lock created the folder
        remove_temporaries(self.path / "checkpoints")
        self._keep_merged_checkpoints()
        make_directory(self.state_path)
        remove_temporaries(self.state_path)

    def _note_environment(self) -> None:
        """Add the current environment to the run's list of environments, unless it is listed already."""
        if environment() not in self.environments:
            record = {**self._record, "environments": [*self.environments, environment()]}
            write_json(self.path, self.spec_path.name, record)
            self._drop_reading()

    def _drop_reading(self) -> None:
        """Clear the cached content of files that have changed since they were read."""
        for name in ("cell", "_record", "_files"):
            self.__dict__.pop(name, None)

    def _require_lock(self) -> None:
        """Raise an error unless this process has the run open for writing.

        Errors: `StoreError` if it is finished; `InUseError` if another process has taken it over; `RuntimeError` if it
        is not open.
        """
        if self.finished:
            raise StoreError(f"{self.path}: finished, cannot be written; remove it to train it again")
        if self._lock.lost:
            raise InUseError(f"{self.path}: taken over by another process")
        if not self._lock.held:
            raise RuntimeError(f"{self.path} is not open for writing: use `with store.open(cell) as run:`")
