"""Runs: the results of computed cells, for reading."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anchorlab.errors import StoreError
from anchorlab.plain import MOST_BYTES_OF_RESULTS
from anchorlab.runs.atomic_files import (
    Fingerprint,
    check_file,
    check_named_file,
    damage_in,
    damaged,
    files_below,
    read_json,
    unreadable,
)
from anchorlab.runs.cell import Cell
from anchorlab.runs.chunk_directory import ChunkDirectory
from anchorlab.runs.metrics import metrics_frame, read_metrics, scan_metrics
from anchorlab.runs.names import MANIFEST, READINGS, checked_record, checkpoint_name, listed_files, step_of
from anchorlab.runs.tensor_file import check_tensors, read_tensors

if TYPE_CHECKING:
    import polars
    import torch
    from jaxtyping import Shaped


_OF_TRAINED_RUNS = {"metric", "plot", "experiment", "ensemble", "diverged"}


class Run:
    """The directory of a cell, for reading.

    The directory contains `spec.json` (the cell and the environments it was computed in), `metrics.parquet`,
    `checkpoints/step-*.safetensors`, and `manifest.json`, which is written last, so a run with a manifest is finished.
    A part (see `anchorlab verify --part`) has no checkpoints: claims read its metrics and `readings.safetensors`.
    Every file of a finished run is checked against the manifest before it is used. An unfinished run has its chunks,
    and how it is divided into them (`plan_path`), in the folder `state_path`.

    Errors: `StoreError` from every reader, naming the missing or altered file.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.manifest_path, self.state_path = path, path / MANIFEST, path / "state"
        self.spec_path, self.metrics_path = path / "spec.json", path / "metrics.parquet"
        self.plan_path = self.state_path / "plan.json"

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
    def is_empty(self) -> bool:
        """Whether the folder holds at most a lock and partial files of a killed writer."""
        try:
            return all(path.name == "lock" or path.name.startswith(".") for path in self.path.iterdir())
        except OSError:
            return False

    @cached_property
    def cell(self) -> Cell:
        """The cell of the run, with its label."""
        return Cell(self.record["spec"], label=self.record["label"])

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
        return list(self.record["environments"])

    @property
    def made_by(self) -> list[dict[str, Any]]:
        """Where each chunk of a finished run was trained: its members, host, processor, device and version of torch."""
        return list(self.record.get("made_by", ()))

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
            return (self.manifest_path if self.finished else self.path).lstat().st_mtime_ns
        except OSError as error:
            raise unreadable(self.path, error, self.address) from None

    @property
    def modified(self) -> float:
        """When the run was finished, or started if unfinished, in seconds since 1970."""
        return self.changed / 1e9

    def metrics(self) -> "polars.DataFrame":
        """Return the table of metrics, with the columns of `metrics_schema`."""
        with damage_in(self.metrics_path, self.address):
            return read_metrics(self.checked(self.metrics_path))

    def metrics_so_far(self) -> "polars.DataFrame":
        """Return the metrics of an unfinished run, up to the newest state of each chunk; as `metrics`."""
        chunks = enumerate(self.recorded_plan()["chunks"])
        return metrics_frame((members[row[0]], *row[1:]) for at, members in chunks for row in self.chunk(at).rows())

    def checkpoints(self) -> list[int]:
        """Return the steps of all checkpoints, ascending."""
        return sorted(step for name in self.files if (step := step_of(name)) is not None)

    def read_checkpoint(self, step: int) -> "dict[str, Shaped[torch.Tensor, 'member ...']]":
        """Return the weights of all members at `step`, each tensor `[member ...]`, on the CPU."""
        self.check_step(step, self.checkpoints())
        return self._tensors(checkpoint_name(step))

    def check_step(self, step: int, known: Sequence[int]) -> None:
        """Raise `StoreError` for a step that is not among those with a checkpoint."""
        if step not in known:
            listed = ", ".join(map(str, known)) or "none"
            raise StoreError(f"{self.path}: no checkpoint of step {step}; there are {listed}")

    def readings(self) -> "dict[str, Shaped[torch.Tensor, 'member ...']]":
        """Return the measurements that a part keeps in place of weights, each tensor `[member ...]`.

        Empty for a run that is not a part, and for a part whose claims read only metrics.
        """
        return self._tensors(READINGS) if READINGS in self.files else {}

    def _tensors(self, name: str) -> "dict[str, Shaped[torch.Tensor, 'member ...']]":
        with damage_in(self.path / name, self.address):
            return read_tensors(self.checked(self.path / name))

    def chunk(self, index: int) -> ChunkDirectory:
        """Return the directory of a chunk of an unfinished run, to be opened here or in another process."""
        return ChunkDirectory(self.state_path / f"chunk-{index:04d}", self.address)

    def recorded_plan(self) -> Any:
        """Return the recorded division of an unfinished run into chunks."""
        data = read_json(self.plan_path, self.address)
        if "plan" not in data:
            raise damaged(self.plan_path, "holds no plan", self.address)
        return data["plan"]

    def problems(self) -> list[str]:
        """Read every file and return one line per problem; empty if there is none."""
        found: list[str] = []
        try:
            for check in self._checks():
                try:
                    check()
                except StoreError as error:
                    found.append(str(error))
        except StoreError as error:  # after which further checks are pointless
            found.append(str(error))
        except OSError as error:
            found.append(str(unreadable(Path(error.filename or self.path), error, self.address)))
        return found

    def _checks(self) -> Iterator[Callable[[], object]]:
        if self.finished:
            tensors = [*map(checkpoint_name, self.checkpoints()), *({READINGS} & self.files.keys())]
            yield self._read_record
            yield partial(self._check, self.checked, self.metrics_path, scan_metrics)
            for name in tensors:
                yield partial(self._check, self.checked, self.path / name, check_tensors)
        elif not self.is_empty:
            files = files_below(self.state_path)
            states = sorted(path for path in files if path.suffix == ".safetensors" and not path.name.startswith("."))
            yield self._check_manifest_was_not_lost
            yield self._read_record
            if self.plan_path.exists():
                yield partial(self._check, Path, self.plan_path, lambda _: self.recorded_plan())
            for path in states:
                yield partial(self._check, check_named_file, path, check_tensors)

    def _check(self, intact: Callable[[Path], Path], path: Path, fits: Callable[[Path], object]) -> None:
        """Check that a file has not been changed, and then its content; one that training has removed is no damage."""
        try:
            with damage_in(path, self.address):
                fits(intact(path))
        except StoreError:
            if self.finished or path.exists():
                raise

    @cached_property
    def record(self) -> dict[str, Any]:
        """The content of `spec.json`, checked."""
        return self._read_record()

    def _read_record(self) -> dict[str, Any]:
        if self.finished:
            self.checked(self.spec_path, MOST_BYTES_OF_RESULTS)
        with damage_in(self.spec_path, self.address):
            return checked_record(read_json(self.spec_path, self.address, MOST_BYTES_OF_RESULTS), self.address)

    @cached_property
    def files(self) -> dict[str, Fingerprint]:
        """The fingerprint of every file that the manifest lists."""
        if not self.finished:
            self._check_manifest_was_not_lost()
            raise StoreError(f"{self.path}: not finished; train it again to continue from its last state")
        with damage_in(self.manifest_path, self.address):
            return listed_files(read_json(self.manifest_path, self.address, MOST_BYTES_OF_RESULTS))

    def checked(self, path: Path, most: int | None = None) -> Path:
        """Return the path of a file of a finished run, after comparing its content with the manifest's digest."""
        name = path.relative_to(self.path).as_posix()
        if name not in self.files:
            raise damaged(self.manifest_path, f"does not name {name}", self.address)
        return check_file(path, self.files[name], self.address, most)

    def _check_manifest_was_not_lost(self) -> None:
        """Raise `StoreError` for results with neither a manifest nor states: a kill leaves one of the two."""
        if self.metrics_path.exists() and not self.state_path.exists() and not self.finished:
            raise damaged(self.manifest_path, "missing", self.address)
