"""Runs: the results of computed cells, for reading."""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anchorlab.errors import StoreError
from anchorlab.plain import MOST_BYTES_OF_RESULTS, read_data
from anchorlab.runs.atomic_files import (
    Fingerprint,
    check_content,
    check_file,
    check_named_file,
    damage_in,
    damaged,
    files_below,
    json_in,
    read_json,
    unreadable,
)
from anchorlab.runs.cell import Cell
from anchorlab.runs.chunk_directory import ChunkDirectory
from anchorlab.runs.metrics import read_metrics, scan_metrics
from anchorlab.runs.names import MANIFEST, READINGS, checked_record, checkpoint_name, listed_files, step_of
from anchorlab.runs.tensor_file import check_tensors, read_tensors

if TYPE_CHECKING:
    import polars
    import torch
    from jaxtyping import Shaped


_SMALL = 1_000_000  # bytes up to which a file is read once, to be checked and used
_OF_TRAINED_RUNS = {"metric", "plot", "experiment", "ensemble", "diverged"}


class Run:
    """The directory of a cell, for reading.

    The directory contains `spec.json` (the cell and the environments it was computed in), `metrics.parquet`,
    `checkpoints/step-*.safetensors`, and `manifest.json`, which is written last, so a run with a manifest is finished.
    A part of a paper's own setting is kept without weights: its claims read metrics, and `readings.safetensors`.
    Every file of a finished run is checked against the manifest before it is used.

    Errors: `StoreError` from every reader, naming the missing or altered file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"

    if not TYPE_CHECKING:  # a type checker would accept every name as an attribute

        def __getattr__(self, name: str) -> Any:
            if name in _OF_TRAINED_RUNS:
                raise AttributeError(f"a run of a store is files alone; al.run({self.address!r}, STORE) has .{name}")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def address(self) -> str:
        """The cell's address, which is the directory's name."""
        return self.path.name

    @property
    def finished(self) -> bool:
        """Whether the run is complete."""
        return os.path.lexists(self.manifest_path)  # a link counts too: reading it reports the damage

    @property
    def exists(self) -> bool:
        """Whether the run has a folder."""
        return self.path.is_dir()

    @property
    def is_empty(self) -> bool:
        """Whether the folder holds at most a lock and partial files of a killed writer."""
        try:
            return all(path.name == "lock" or path.name.startswith(".") for path in self.path.iterdir())
        except OSError:
            return False

    @property
    def spec_path(self) -> Path:
        """The file with the cell and its environments."""
        return self.path / "spec.json"

    @property
    def manifest_path(self) -> Path:
        """The file that lists all other files of a finished run."""
        return self.path / MANIFEST

    @property
    def metrics_path(self) -> Path:
        """The file with the table of metrics."""
        return self.path / "metrics.parquet"

    @property
    def state_path(self) -> Path:
        """The directory of an unfinished run's chunks."""
        return self.path / "state"

    @property
    def plan_path(self) -> Path:
        """The file that records how an unfinished run is divided into chunks."""
        return self.state_path / "plan.json"

    @cached_property
    def cell(self) -> Cell:
        """The cell of the run, with its label."""
        return Cell(self._record["spec"], label=self._record["label"])

    @property
    def spec(self) -> Mapping[str, Any]:
        """The specification of the cell, as plain JSON data."""
        return self.cell.spec

    @property
    def label(self) -> str:
        """The cell's name for people; may be empty."""
        return self.cell.label

    @property
    def environments(self) -> list[dict[str, str | None]]:
        """The environments it was computed in: one, or several if it was resumed elsewhere."""
        return list(self._record["environments"])

    @property
    def made_by(self) -> list[dict[str, Any]]:
        """Where each chunk of a finished run was trained: its members, host, processor, device and version of torch."""
        return list(self._record.get("made_by", ()))

    @property
    def size(self) -> int:
        """The size of the run's files in bytes."""
        total = 0
        for path in files_below(self.path):
            with suppress(OSError):  # files of a run in use come and go; others are unreadable
                total += path.lstat().st_size
        return total

    @property
    def changed(self) -> int:
        """When the run was finished, or started if unfinished, in nanoseconds since 1970."""
        try:
            path = self.manifest_path if self.finished else self.path
            return path.lstat().st_mtime_ns
        except OSError as error:
            raise unreadable(self.path, error, self.address) from None

    @property
    def modified(self) -> float:
        """When the run was finished, or started if unfinished, in seconds since 1970."""
        return self.changed / 1e9

    def metrics(self) -> "polars.DataFrame":
        """Return the table of metrics, with the columns of `metrics_schema`."""
        with damage_in(self.metrics_path, self.address):
            return read_metrics(self._checked(self.metrics_path.name))

    def checkpoints(self) -> list[int]:
        """Return the steps of all checkpoints, ascending."""
        return sorted(step for name in self._files if (step := step_of(name)) is not None)

    def read_checkpoint(self, step: int) -> "dict[str, Shaped[torch.Tensor, 'member ...']]":
        """Return the weights of all members at `step`, each tensor `[member ...]`, on the CPU."""
        if step not in (known := self.checkpoints()):
            raise StoreError(
                f"{self.path}: no checkpoint of step {step}; there are {', '.join(map(str, known)) or 'none'}"
            )
        with damage_in(self.path / checkpoint_name(step), self.address):
            return read_tensors(self._checked(checkpoint_name(step)))

    def readings(self) -> "dict[str, Shaped[torch.Tensor, 'member ...']]":
        """Return what was measured on the members when a part was made of the run, each tensor `[member ...]`.

        Empty for a run that is no part, and for a part whose claims read metrics alone.
        """
        if READINGS not in self._files:
            return {}
        with damage_in(self.path / READINGS, self.address):
            return read_tensors(self._checked(READINGS))

    def problems(self) -> list[str]:
        """Read every file and return one line per problem; empty if there is none."""
        found: list[str] = []

        def note(check: Callable[[], object]) -> None:
            try:
                check()
            except StoreError as error:
                found.append(str(error))

        try:
            note(lambda: self._check(note))
        except OSError as error:
            found.append(str(unreadable(Path(error.filename or self.path), error, self.address)))
        return found

    def _check(self, note: Callable[[Callable[[], object]], None]) -> None:
        """Let `note` check each file by itself. Errors: `StoreError` for damage that makes further checks pointless."""
        if self.finished:
            checkpoints = map(checkpoint_name, self.checkpoints())
            note(self._read_record)
            note(lambda: self._check_content(self.metrics_path.name, scan_metrics))
            for name in [*checkpoints, *({READINGS} & self._files.keys())]:
                note(partial(self._check_content, name, check_tensors))
        elif not self.is_empty:
            files = files_below(self.state_path)
            states = sorted(path for path in files if path.suffix == ".safetensors" and not path.name.startswith("."))
            note(self._check_manifest_was_not_lost)
            note(self._read_record)
            if self.plan_path.exists():
                note(lambda: self._check_unless_gone(self.plan_path, self.recorded_plan))
            for path in states:
                note(partial(self._check_unless_gone, path, partial(self._check_state, path)))

    def _check_content(self, name: str, check: Callable[[Path | bytes], object]) -> None:
        with damage_in(self.path / name, self.address):
            check(self._checked(name))

    def _check_state(self, path: Path) -> None:
        with damage_in(path, self.address):
            check_tensors(check_named_file(path))

    def chunk(self, index: int) -> ChunkDirectory:
        """Return the directory of a chunk of an unfinished run, to be opened here or in another process."""
        return ChunkDirectory(self.state_path / f"chunk-{index:04d}", self.address)

    def recorded_plan(self) -> Any:
        """Return the recorded division of an unfinished run into chunks. Errors: `StoreError` if missing or damaged."""
        data = read_json(self.plan_path, self.address)
        if "plan" not in data:
            raise damaged(self.plan_path, "holds no plan", self.address)
        return data["plan"]

    def _check_unless_gone(self, path: Path, check: Callable[[], object]) -> None:
        """Run a check, and ignore its error if the file has gone: training removes states, and the plan at its end."""
        try:
            check()
        except StoreError:
            if path.exists():
                raise

    @cached_property
    def _record(self) -> dict[str, Any]:
        return self._read_record()

    def _read_record(self) -> dict[str, Any]:
        """Read `spec.json`. Errors: `StoreError` if it is damaged, or belongs to a run with another address."""
        if self.finished:
            self._checked("spec.json")
        with damage_in(self.spec_path, self.address):
            return checked_record(self._json(self.spec_path), self.address)

    @cached_property
    def _files(self) -> dict[str, Fingerprint]:
        """The fingerprint of every file that the manifest lists."""
        if not self.finished:
            self._check_manifest_was_not_lost()
            raise StoreError(f"{self.path}: not finished; train it again to continue from its last state")
        with damage_in(self.manifest_path, self.address):
            return listed_files(self._json(self.manifest_path))

    def _check_manifest_was_not_lost(self) -> None:
        """Raise `StoreError` if there are results but neither a manifest nor states.

        A kill cannot cause this, since the manifest is written before the states are removed.
        """
        if self.metrics_path.exists() and not self.state_path.exists() and not self.finished:
            raise damaged(self.manifest_path, "missing", self.address)

    def content(self, name: str) -> bytes:
        """Return a file's content, unchecked. Errors: `OSError` if there is no file."""
        return read_data(self.path / name, MOST_BYTES_OF_RESULTS)

    def _json(self, path: Path) -> dict[str, Any]:
        """Return the object in a JSON file. Errors: `StoreError` if the file is missing or damaged."""
        try:
            return json_in(path, self.content(path.name), self.address)
        except OSError as error:
            raise unreadable(path, error, self.address) from None

    def _checked(self, name: str) -> Path | bytes:
        """Return a file's content, or the path if it is over `_SMALL` bytes, after checking it against the manifest.

        Errors: `StoreError` if the file is not in the manifest or does not match its fingerprint there.
        """
        if name not in self._files:
            raise damaged(self.manifest_path, f"does not name {name}", self.address)
        path, expected = self.path / name, self._files[name]
        if expected.size > _SMALL:
            return check_file(path, expected, self.address)
        try:
            return check_content(path, self.content(name), expected, self.address)
        except OSError as error:
            raise unreadable(path, error, self.address) from None
