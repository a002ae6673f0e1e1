"""Chunks: directories for some members of an unfinished run, each written by one process at a time."""

import json
import re
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anchorlab.errors import DamagedChunkError, StoreError
from anchorlab.plain import parse_json
from anchorlab.runs.atomic_files import check_named_file, matching, remove_temporaries, write_file
from anchorlab.runs.tensor_file import read_tensors, tensor_pieces

if TYPE_CHECKING:
    import torch
    from jaxtyping import Shaped

_METADATA = "metadata.json"
_STEP = re.compile(r"step-([0-9]{8,18})\.[0-9a-f]+\.safetensors")
_ATTEMPT = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True)
class ChunkState:
    """The arguments of the last `write_state`: step, tensors, and metadata."""

    step: int
    tensors: dict[str, "torch.Tensor"]
    metadata: Any


class ChunkDirectory:
    """The states, checkpoints and result of one chunk.

    Open it for writing with `with run.chunk(0) as chunk:`, in any process. Resume it from `latest_state`; it is
    finished once it has a result. Every file's name contains a digest of its content, which reveals damage.

    Each opening is a numbered attempt with its own folder, `chunk-0000.NUMBER`. A new attempt renames the folder of the
    previous one, so that a process which was thought to be dead can no longer write into it: the last bits of two
    attempts may differ between processors, and all files of a chunk must come from one. A finished chunk keeps its
    folder, since another process may be reading it.
    """

    def __init__(self, path: Path, address: str) -> None:
        self.path, self.address = path, address
        self._attempt: Path | None = None

    def __enter__(self) -> "ChunkDirectory":
        """Begin a new attempt, unless the chunk is finished."""
        if self._attempt is not None:
            raise StoreError(f"{self.path}: already open in this process; close it first")
        if not self.finished:
            self._begin()
        return self

    def __exit__(self, *_: object) -> None:
        self._attempt = None

    def restart(self) -> None:
        """Remove all states and checkpoints, so that training starts again from the first step."""
        self._remove("", but=())
        self._remove("checkpoints", but=())

    def write_state(
        self, step: int, tensors: "Mapping[str, Shaped[torch.Tensor, '...']]", metadata: Any = None
    ) -> None:
        """Write everything needed to resume from `step`, and remove the previous state.

        `metadata` is any JSON data, including NaN. Write all checkpoints up to `step` first: the state records their
        names.
        """
        kept = self._write(f"step-{step:08d}", tensors, metadata)
        self._remove("", but=(kept.name,))

    def latest_state(self) -> ChunkState | None:
        """Return the newest state and remove checkpoints written after it; None, and no checkpoints, at the beginning.

        Errors: `StoreError` for a finished chunk; `DamagedChunkError` for a damaged or missing state or checkpoint.
        """
        if self.finished:
            raise StoreError(f"{self.path}: finished, so it has a result and no state; check `finished` first")
        folder = self._open_folder()
        states = _steps(folder)
        if not states:
            self._remove("checkpoints", but=())
            return None
        step = max(states)
        tensors, checkpoints, metadata = _read(states[step])
        for name in checkpoints:
            if not (folder / "checkpoints" / name).exists():
                raise DamagedChunkError(folder / "checkpoints" / name, "missing")
        self._remove("checkpoints", but=checkpoints)
        return ChunkState(step, tensors, metadata)

    def write_checkpoint(self, step: int, tensors: "Mapping[str, Shaped[torch.Tensor, 'member ...']]") -> None:
        """Write the weights of this chunk's members at `step`, each tensor `[member ...]`."""
        write_file(
            self._open_folder() / "checkpoints", f"step-{step:08d}.{{digest}}.safetensors", tensor_pieces(tensors)
        )

    def checkpoints(self) -> dict[int, Path]:
        """Return the file of each checkpoint by step, ascending; in a finished chunk, those recorded in the result."""
        if (newest := self._newest()) is None:
            return {}
        folder = newest[1] / "checkpoints"
        if (result := self._result_path()) is None:
            return _steps(folder)
        return dict(sorted((_step(name), folder / name) for name in _read(result)[1]))

    def finish(self, result: Any) -> None:
        """Write the chunk's result, any JSON data such as rows of metrics, and remove its state."""
        self._write("result", {}, result)
        self._remove("", but=())

    @property
    def taken_over(self) -> bool:
        """Whether another process has begun a new attempt since this one opened the chunk, or has removed the run."""
        return self._attempt is not None and not self._attempt.exists()

    @property
    def finished(self) -> bool:
        """Whether the chunk has its result."""
        return self._result_path() is not None

    def result(self) -> Any:
        """Return the argument of `finish`. Errors: `StoreError` if unfinished, `DamagedChunkError` if damaged."""
        path = self._result_path()
        if path is None:
            raise StoreError(f"{self.path}: not finished; train the run again to continue from its last state")
        return _read(path)[2]

    def rows(self) -> list[Any]:
        """Return the rows of metrics in the newest state, or in the result; none at the beginning.

        Errors: `DamagedChunkError`, also if the training process replaces the state meanwhile.
        """
        path, found = self._result_path(), self._newest()
        states = {} if found is None else _steps(found[1])
        path = path or (states[max(states)] if states else None)
        return [] if path is None else list(_read(path)[2]["rows"])

    def _newest(self) -> tuple[int, Path] | None:
        prefix = f"{self.path.name}."
        try:
            names = [path for path in self.path.parent.iterdir() if path.name.startswith(prefix)]
        except FileNotFoundError:
            return None
        attempts = [(int(end), path) for path in names if _ATTEMPT.fullmatch(end := path.name.removeprefix(prefix))]
        return max(attempts, default=None)

    def _begin(self) -> None:
        """Begin the next attempt: take over the folder of the newest one, or create the first."""
        found = self._newest()
        first = time.time_ns() // 10**6  # unlike the numbers from before the run was removed, if it was
        number = first if found is None else found[0] + 1
        folder = self.path.with_name(f"{self.path.name}.{number}")
        try:
            if found is None:
                folder.mkdir()
            else:
                found[1].rename(folder)  # atomic: it succeeds in one process only
            (folder / "checkpoints").mkdir(exist_ok=True)
        except OSError as error:
            raise StoreError(f"{folder}: cannot be written: {error.strerror}") from error
        remove_temporaries(folder)
        remove_temporaries(folder / "checkpoints")
        self._attempt = folder

    def _open_folder(self) -> Path:
        if self._attempt is None:
            raise RuntimeError(f"{self.path} is not open for writing: use `with run.chunk(index) as chunk:`")
        return self._attempt

    def _result_path(self) -> Path | None:
        found = self._newest()
        return None if found is None else max(matching(found[1], "result.*.safetensors"), default=None)

    def _write(self, stem: str, tensors: "Mapping[str, Shaped[torch.Tensor, '...']]", metadata: Any) -> Path:
        """Write tensors and metadata to one file: two files could contradict each other after a kill."""
        import torch

        folder = self._open_folder()
        if _METADATA in tensors:
            raise ValueError(f"the name {_METADATA} is reserved for the metadata")
        names = sorted(path.name for path in _steps(folder / "checkpoints").values())
        text = json.dumps({"checkpoints": names, "metadata": metadata}, separators=(",", ":")).encode()
        # Stored as a tensor: a safetensors header may have at most 100 MB, which long tables of metrics exceed.
        stored = {**tensors, _METADATA: torch.frombuffer(bytearray(text), dtype=torch.uint8)}
        return write_file(folder, f"{stem}.{{digest}}.safetensors", tensor_pieces(stored))[0]

    def _remove(self, folder: str, but: Collection[str]) -> None:
        for path in matching(self._open_folder() / folder, "step-*.safetensors"):
            if path.name not in but:
                path.unlink(missing_ok=True)


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
    paths = matching(directory, "step-*.safetensors")
    return dict(sorted((_step(path.name), path) for path in paths if _STEP.fullmatch(path.name)))


def _step(name: str) -> int:
    return int(name.split(".")[0].removeprefix("step-"))
