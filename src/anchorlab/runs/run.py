"""Runs: what a cell left behind, for reading."""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anchorlab.errors import StoreError
from anchorlab.runs.cell import Cell
from anchorlab.runs.files import Fingerprint, check_file, check_named_file, damaged, read_json
from anchorlab.runs.tensor_file import read_tensors

if TYPE_CHECKING:
    import polars
    import torch

_CHECKPOINT = re.compile(r"checkpoints/step-(\d{8,})\.safetensors")


class Run:
    """The directory of a cell, for reading; every file is checked against the manifest before it is believed.

    `spec.json` what was computed and with what, `metrics.parquet`, `checkpoints/step-*.safetensors`, and
    `manifest.json`, written last: a run is finished when it has one. Errors of all readers: `StoreError` that names a
    missing or altered file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"

    @property
    def address(self) -> str:
        """The cell's address, which is the directory's name."""
        return self.path.name

    @property
    def finished(self) -> bool:
        """Whether everything is there."""
        return self.manifest_path.exists()

    @property
    def spec_path(self) -> Path:
        """The file that says what is computed."""
        return self.path / "spec.json"

    @property
    def manifest_path(self) -> Path:
        """The file that names all others of a finished run."""
        return self.path / "manifest.json"

    @property
    def state_path(self) -> Path:
        """The directory of an unfinished run's states."""
        return self.path / "state"

    @property
    def plan_path(self) -> Path:
        """The file that says how an unfinished run is divided into chunks."""
        return self.state_path / "plan.json"

    @cached_property
    def cell(self) -> Cell:
        """What is computed, with its label."""
        return Cell(self._record["spec"], label=self._record["label"])

    @property
    def spec(self) -> Mapping[str, Any]:
        """What is computed, as plain JSON data."""
        return self.cell.spec

    @property
    def label(self) -> str:
        """A name for people; may be empty."""
        return self.cell.label

    @property
    def environments(self) -> list[dict[str, str | None]]:
        """Versions, platform and commit it was computed with: one entry, more when it was resumed elsewhere."""
        return list(self._record["environments"])

    @property
    def size(self) -> int:
        """Bytes on disk."""
        total = 0
        for path in self.path.rglob("*"):
            with suppress(FileNotFoundError):  # A run in use has files that come and go.
                total += path.stat().st_size if path.is_file() else 0
        return total

    @property
    def modified(self) -> float:
        """When it was finished, or begun if unfinished: seconds since 1970."""
        path = self.manifest_path if self.finished else self.path
        return path.stat().st_mtime

    def metrics(self) -> "polars.DataFrame":
        """The table of metrics, with the columns of `metrics_schema`."""
        import polars as pl

        return pl.read_parquet(self._checked("metrics.parquet"))

    def checkpoints(self) -> list[int]:
        """The steps of which weights were kept, ascending."""
        steps = (_CHECKPOINT.fullmatch(name) for name in self._files)
        return sorted(int(match[1]) for match in steps if match)

    def read_checkpoint(self, step: int) -> dict[str, "torch.Tensor"]:
        """The tensors kept at `step`, stacked over members, on the CPU."""
        if step not in (known := self.checkpoints()):
            raise StoreError(
                f"{self.path}: no checkpoint of step {step}; there are {', '.join(map(str, known)) or 'none'}"
            )
        return read_tensors(self._checked(checkpoint_name(step)))

    def problems(self) -> list[str]:
        """What is wrong with the files, one line each; every file is read. Empty when all is well."""
        found: list[str] = []
        for check in self._checks():
            try:
                check()
            except StoreError as error:
                found.append(str(error))
        return found

    def _checks(self) -> list[Callable[[], object]]:
        if self.finished:
            try:
                return [partial(self._checked, name) for name in self._files]
            except StoreError:
                return [lambda: self._files]
        states = sorted(self.state_path.rglob("[!.]*.safetensors"))
        return [
            self._check_manifest_was_not_lost,
            lambda: self._record,
            *([partial(read_json, self.plan_path, self.address)] if self.plan_path.exists() else []),
            *(partial(check_named_file, path, self.address) for path in states),
        ]

    @cached_property
    def _record(self) -> dict[str, Any]:
        if self.finished:
            self._checked("spec.json")
        record = read_json(self.spec_path, self.address)
        if record["address"] != self.address:
            raise damaged(self.spec_path, f"belongs to the run {record['address']}", self.address)
        return record

    @cached_property
    def _files(self) -> dict[str, Fingerprint]:
        if not self.finished:
            self._check_manifest_was_not_lost()
            raise StoreError(f"{self.path}: not finished; train it again to go on from its last state")
        files = read_json(self.manifest_path, self.address)["files"]
        return {name: Fingerprint(entry["size"], entry["sha256"]) for name, entry in files.items()}

    def _check_manifest_was_not_lost(self) -> None:
        """States are dropped after the manifest is written: results without either cannot come from a kill."""
        if (self.path / "metrics.parquet").exists() and not self.state_path.exists():
            raise damaged(self.manifest_path, "missing", self.address)

    def _checked(self, name: str) -> Path:
        if name not in self._files:
            raise damaged(self.manifest_path, f"does not name {name}", self.address)
        return check_file(self.path / name, self._files[name], self.address)


def checkpoint_name(step: int) -> str:
    """A checkpoint's path below its run."""
    return f"checkpoints/step-{step:08d}.safetensors"
