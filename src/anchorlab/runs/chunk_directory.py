"""Chunks: directories for some members of an unfinished run, each written by one process at a time."""

import json
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anchorlab.errors import DamagedChunkError, InUseError, StoreError
from anchorlab.plain import check_way, parse_json
from anchorlab.runs.atomic_files import check_named_file, matching, remove_temporaries, sync_directory, write_file
from anchorlab.runs.lease import LEASE, Lease, holder
from anchorlab.runs.tensor_file import read_tensors, tensor_pieces

if TYPE_CHECKING:
    import torch
    from jaxtyping import Shaped

_METADATA = "metadata.json"
_STEP = re.compile(r"step-([0-9]{8,18})\.[0-9a-f]+\.safetensors")
_ATTEMPT = re.compile(r"[0-9]{1,18}")
_PAUSE = 0.05  # seconds between two tries


@dataclass(frozen=True)
class ChunkState:
    """The arguments of the last `write_state`: step, tensors, and metadata."""

    step: int
    tensors: dict[str, "torch.Tensor"]
    metadata: Any


class ChunkDirectory:
    """The states, checkpoint parts and result of one chunk.

    Open it for writing with `with run.chunk(0) as chunk:`, which leases it. A chunk that is not open can be pickled
    and sent to another process. Resume it from `latest_state`; it is finished once it has a result. Every file's name
    contains a digest of its content, which reveals damage.

    Each opening is a numbered attempt with its own folder: attempt 3 of `chunk-0000` is `chunk-0000.3`. A new attempt
    renames the folder of the previous one, so a process whose lease has expired can no longer write into it. A
    finished chunk is opened without a lease and keeps its folder, since another process may be reading it.
    """

    def __init__(self, path: Path, address: str, wait: float = 0.0, lease: float = LEASE) -> None:
        self.path, self.address, self.wait, self.lease = path, address, wait, lease
        self._lease: Lease | None = None
        self._opened_finished = False

    def __enter__(self) -> "ChunkDirectory":
        """Lease the chunk, unless it is finished. Errors: `InUseError` that names the process working on it."""
        if self._lease is not None:
            raise StoreError(f"{self.path}: already open in this process; close it first")
        self._open(again=False)
        return self

    def _open(self, again: bool) -> None:
        """Lease the chunk. A finished chunk is leased only with `again`; otherwise it is opened for reading."""
        deadline = time.monotonic() + self.wait
        while True:
            found = self._newest()
            owner = None if found is None else holder(found[1])
            if owner is None and not again and found is not None and _result(found[1]) is not None:
                self._opened_finished = True
                return
            if owner is None and self._begin(found):
                return
            if owner is not None and (left := deadline - time.monotonic()) <= 0:
                raise InUseError(f"{self.path}: in use by {owner}; wait until it ends, or end it")
            time.sleep(_PAUSE if owner is None else min(_PAUSE, left))

    def __exit__(self, *_: object) -> None:
        if self._lease is not None:
            self._lease.release()
            self._lease = None
        self._opened_finished = False

    @property
    def owner(self) -> str | None:
        """The process that works on the chunk, such as `process 7 on HOST`; None if there is none."""
        found = self._newest()
        return None if found is None else holder(found[1])

    def contains(self, path: Path) -> bool:
        """Return whether a file lies in a folder of this chunk."""
        return any(parent.name.partition(".")[0] == self.path.name for parent in path.parents)

    def restart(self) -> None:
        """Remove all files of the chunk, finished or not, so that training starts again from the first step."""
        if self._lease is None:
            self._open(again=True)
        folder, self._opened_finished = self._require_lease(), False
        for path in [*matching(folder, "*.safetensors"), *matching(folder / "checkpoints", "*.safetensors")]:
            path.unlink(missing_ok=True)

    def write_state(
        self, step: int, tensors: "Mapping[str, Shaped[torch.Tensor, '...']]", metadata: Any = None
    ) -> None:
        """Write everything needed to resume from `step`, and remove the previous state.

        `metadata` is any JSON data, including NaN. Write all checkpoints up to `step` first: the state records their
        names.
        """
        kept = self._write(f"step-{step:08d}", tensors, metadata)
        self._remove_states(but=kept)

    def latest_state(self) -> ChunkState | None:
        """Return the newest state and remove checkpoints written after it; None, and no checkpoints, at the beginning.

        Errors: `StoreError` for a finished chunk; `DamagedChunkError` for a damaged or missing state or checkpoint.
        """
        if self.finished:
            raise StoreError(f"{self.path}: finished, so it has a result and no state; check `finished` first")
        folder = self._require_lease()
        states = sorted(_steps(folder).items())
        if not states:
            self._remove_checkpoints(but=())
            return None
        step, path = states[-1]
        tensors, checkpoints, metadata = _read(path)
        for name in checkpoints:
            if not (folder / "checkpoints" / name).exists():
                raise DamagedChunkError(folder / "checkpoints" / name, "missing")
        self._remove_checkpoints(but=checkpoints)
        return ChunkState(step, tensors, metadata)

    def write_checkpoint(self, step: int, tensors: "Mapping[str, Shaped[torch.Tensor, 'member ...']]") -> None:
        """Write the weights of this chunk's members at `step`, each tensor `[member ...]`."""
        directory = self._require_lease() / "checkpoints"
        previous = _steps(directory).get(step)
        path = self._write_file(directory, f"step-{step:08d}.{{digest}}.safetensors", tensors)
        if previous is not None and previous != path:
            previous.unlink(missing_ok=True)

    def checkpoints(self) -> list[int]:
        """Return the steps of all checkpoints, ascending."""
        return sorted(self._checkpoint_paths())

    def checkpoint_path(self, step: int) -> Path:
        """Return the file of a checkpoint, undamaged. Errors: `DamagedChunkError` if it is damaged or missing."""
        path = self._checkpoint_paths().get(step)
        if path is None:
            raise DamagedChunkError(self.path / "checkpoints", f"no checkpoint of step {step}")
        return check_named_file(path)

    def read_checkpoint(self, step: int) -> "dict[str, Shaped[torch.Tensor, 'member ...']]":
        """Return the weights of this chunk's members at `step`, each tensor `[member ...]`.

        Errors: `DamagedChunkError` if the file is damaged or missing.
        """
        return read_tensors(self.checkpoint_path(step))

    def remove_checkpoints(self, before: int) -> None:
        """Remove the checkpoints of earlier steps, once they are merged."""
        for step, path in self._checkpoint_paths().items():
            if step < before:
                path.unlink(missing_ok=True)

    def finish(self, result: Any) -> None:
        """Write the chunk's result, any JSON data such as rows of metrics, and remove its state."""
        self._write("result", {}, result)
        self._remove_states(but=None)

    @property
    def finished(self) -> bool:
        """Whether the chunk has its result. Once true when opened, it stays true even if the run is merged."""
        return self._opened_finished or self._result_path() is not None

    def result(self) -> Any:
        """Return the argument of `finish`. Errors: `StoreError` if unfinished, `DamagedChunkError` if damaged."""
        path = self._result_path()
        if path is None:
            raise StoreError(f"{self.path}: not finished; train the run again to continue from its last state")
        return _read(path)[2]

    def _newest(self) -> tuple[int, Path] | None:
        """Return the number and folder of the newest attempt, if any. Errors: `StoreError` for a link in its path."""
        prefix = f"{self.path.name}."
        run = self.path.parent.parent
        check_way(self.path.parent, run.parent)
        try:
            names = [path for path in self.path.parent.iterdir() if path.name.startswith(prefix)]
        except FileNotFoundError:
            return None
        attempts = [(int(end), path) for path in names if _ATTEMPT.fullmatch(end := path.name.removeprefix(prefix))]
        newest = max(attempts, default=None)
        if newest is not None:
            check_way(newest[1] / "checkpoints", run)
        return newest

    def _begin(self, found: tuple[int, Path] | None) -> bool:
        """Begin the attempt after `found` and return whether this process got it: another one may have been faster."""
        number = 1 if found is None else found[0] + 1
        folder = self.path.with_name(f"{self.path.name}.{number}")
        try:
            if found is None:
                folder.mkdir()
            else:
                found[1].rename(folder)  # atomic: succeeds in one process only
        except OSError as error:
            if self._newest() != found:
                return False
            raise _unwritable(folder, error) from error
        lease = Lease(folder, self.lease)
        try:
            lease.write()
            sync_directory(folder.parent)
            (folder / "checkpoints").mkdir(exist_ok=True)
            remove_temporaries(folder)
            remove_temporaries(folder / "checkpoints")
        except (OSError, StoreError) as error:
            lease.release()
            if self._newest() != (number, folder):  # another has taken it meanwhile
                return False
            raise (error if isinstance(error, StoreError) else _unwritable(folder, error)) from error
        except BaseException:
            lease.release()
            raise
        self._lease = lease
        return True

    def _require_lease(self) -> Path:
        """Return the folder of this attempt.

        Errors: `RuntimeError` unless the chunk is open for writing; `InUseError` if another process has taken it.
        """
        if self._lease is None:
            raise RuntimeError(f"{self.path} is not open for writing: use `with run.chunk(index) as chunk:`")
        newest = self._newest()
        if newest is None or newest[1] != self._lease.directory or not self._lease.holds:
            raise InUseError(f"{self.path}: taken over by another process")
        return self._lease.directory

    def _result_path(self) -> Path | None:
        found = self._newest()
        return None if found is None else _result(found[1])

    def _checkpoint_paths(self) -> dict[int, Path]:
        """Return the file of each checkpoint by step; in a finished chunk, only those recorded in the result."""
        found = self._newest()
        if found is None:
            return {}
        directory, result = found[1] / "checkpoints", self._result_path()
        if result is None:
            return _steps(directory)
        return {_step(name): directory / name for name in _read(result)[1]}

    def _write(self, stem: str, tensors: "Mapping[str, Shaped[torch.Tensor, '...']]", metadata: Any) -> Path:
        """Write tensors and metadata to one file: two files could contradict each other after a kill."""
        import torch

        folder = self._require_lease()
        if _METADATA in tensors:
            raise ValueError(f"the name {_METADATA} is reserved for the metadata")
        names = sorted(path.name for path in _steps(folder / "checkpoints").values())
        text = json.dumps({"checkpoints": names, "metadata": metadata}, separators=(",", ":")).encode()
        # Stored as a tensor: a safetensors header may have at most 100 MB, which long tables of metrics exceed.
        stored = {**tensors, _METADATA: torch.frombuffer(bytearray(text), dtype=torch.uint8)}
        return self._write_file(folder, f"{stem}.{{digest}}.safetensors", stored)

    def _write_file(self, directory: Path, name: str, tensors: Mapping[str, "torch.Tensor"]) -> Path:
        try:
            return write_file(directory, name, tensor_pieces(tensors))[0]
        except StoreError:
            self._require_lease()  # if the folder was taken, that is the reason
            raise

    def _remove_states(self, but: Path | None) -> None:
        for path in matching(self._require_lease(), "step-*.safetensors"):
            if path != but:
                path.unlink(missing_ok=True)

    def _remove_checkpoints(self, but: list[str] | tuple[()]) -> None:
        for path in matching(self._require_lease() / "checkpoints", "step-*.safetensors"):
            if path.name not in but:
                path.unlink(missing_ok=True)


def _result(folder: Path) -> Path | None:
    return max(matching(folder, "result.*.safetensors"), default=None)


def _unwritable(folder: Path, error: OSError) -> StoreError:
    return StoreError(f"{folder}: cannot be written: {error.strerror}")


def _read(path: Path) -> tuple[dict[str, "torch.Tensor"], list[str], Any]:
    """Return a file's tensors, the names of the checkpoints that existed when it was written, and its metadata."""
    try:
        tensors = read_tensors(check_named_file(path))
        stored = parse_json(tensors.pop(_METADATA).numpy().tobytes())
        checkpoints, metadata = stored["checkpoints"], stored["metadata"]
        if not all(_STEP.fullmatch(name) for name in checkpoints):
            raise ValueError("names checkpoints that no chunk has")
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedChunkError(path, f"damaged: {error}") from None
    return tensors, checkpoints, metadata


def _steps(directory: Path) -> dict[int, Path]:
    """Return the file of each step; if a step has two files, the newer one."""
    paths = [path for path in matching(directory, "step-*.safetensors") if _STEP.fullmatch(path.name)]
    with suppress(FileNotFoundError):
        paths.sort(key=lambda path: path.lstat().st_mtime_ns)
    return {_step(path.name): path for path in paths}


def _step(name: str) -> int:
    return int(name.split(".")[0].removeprefix("step-"))
