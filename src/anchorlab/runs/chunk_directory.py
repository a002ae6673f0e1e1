"""Chunks: directories for some members of an unfinished run, each written by one process at a time."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anchorlab.errors import StoreError
from anchorlab.runs.files import check_named_file, damaged, remove_temporaries, write_file
from anchorlab.runs.lock import Lock
from anchorlab.runs.tensor_file import read_tensors, tensor_pieces

if TYPE_CHECKING:
    import torch

_METADATA = "metadata.json"
_STEP = re.compile(r"step-(\d{8,})\.[0-9a-f]+\.safetensors")


@dataclass(frozen=True)
class ChunkState:
    """The arguments of the last `write_state`: step, tensors, and metadata."""

    step: int
    tensors: dict[str, "torch.Tensor"]
    metadata: Any


class ChunkDirectory:
    """The states, checkpoint parts and result of one chunk.

    Open it for writing with `with run.chunk(0) as chunk:`, which takes its lock. A chunk that is not open can be sent
    to another process (pickled). Resume it from `latest_state`; it is finished once it has a result. Every file's name
    contains a digest of its content, which reveals damage.
    """

    def __init__(self, path: Path, address: str, wait: float = 0.0) -> None:
        self.path, self.address, self.wait = path, address, wait
        self._lock = Lock(path / "lock")

    def __enter__(self) -> "ChunkDirectory":
        """Take the lock. Errors: `StoreError` that names the process holding it."""
        self._lock.acquire(self.wait)
        try:
            self._checkpoint_path.mkdir(exist_ok=True)
            remove_temporaries(self.path)
            remove_temporaries(self._checkpoint_path)
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def write_state(self, step: int, tensors: Mapping[str, "torch.Tensor"], metadata: Any = None) -> None:
        """Write everything needed to resume from `step`, and remove the previous state.

        `metadata` is any JSON data, NaN included. Write checkpoints up to `step` first: the state records their names.
        """
        kept = self._write(f"step-{step:08d}", tensors, metadata)
        self._remove_states(but=kept)

    def latest_state(self) -> ChunkState | None:
        """Return the newest state, or None at the beginning, and remove checkpoints written after it.

        Errors: `StoreError` for a finished chunk, and for a damaged or missing state or earlier checkpoint.
        """
        self._require_lock()
        if self.finished:
            raise StoreError(f"{self.path}: finished, so it has a result and no state; check `finished` first")
        states = sorted(_steps(self.path).items())
        if not states:
            self._remove_checkpoints(but=())
            return None
        step, path = states[-1]
        tensors, checkpoints, metadata = self._read(path)
        self._remove_checkpoints(but=checkpoints)
        return ChunkState(step, tensors, metadata)

    def write_checkpoint(self, step: int, tensors: Mapping[str, "torch.Tensor"]) -> None:
        """Write the weights of this chunk's members at `step`, each tensor `[member ...]`."""
        self._require_lock()
        previous = _steps(self._checkpoint_path).get(step)
        name = f"step-{step:08d}.{{digest}}.safetensors"
        path, _ = write_file(self._checkpoint_path, name, tensor_pieces(tensors))
        if previous is not None and previous != path:
            previous.unlink()

    def checkpoints(self) -> list[int]:
        """Return the steps of all checkpoints, ascending."""
        return sorted(_steps(self._checkpoint_path))

    def read_checkpoint(self, step: int) -> dict[str, "torch.Tensor"]:
        """Return the weights of this chunk's members at `step`, each tensor `[member ...]`.

        Errors: `StoreError` if the file is damaged or missing.
        """
        path = _steps(self._checkpoint_path).get(step)
        if path is None:
            raise damaged(self._checkpoint_path, f"no checkpoint of step {step}", self.address)
        return read_tensors(check_named_file(path, self.address))

    def finish(self, result: Any) -> None:
        """Write the chunk's result, any JSON data such as rows of metrics, and remove its state."""
        self._write("result", {}, result)
        self._remove_states(but=None)

    @property
    def finished(self) -> bool:
        """Whether the chunk has its result."""
        return any(self.path.glob("result.*.safetensors"))

    def result(self) -> Any:
        """Return the argument of `finish`. Errors: `StoreError` if unfinished or damaged, or without a checkpoint."""
        paths = sorted(self.path.glob("result.*.safetensors"))
        if not paths:
            raise StoreError(f"{self.path}: not finished; train the run again to continue from its last state")
        return self._read(paths[-1])[2]

    @property
    def _checkpoint_path(self) -> Path:
        return self.path / "checkpoints"

    def _require_lock(self) -> None:
        """Raise `RuntimeError` unless the chunk is open for writing."""
        if not self._lock.held:
            raise RuntimeError(f"{self.path} is not open for writing: use `with run.chunk(index) as chunk:`")

    def _write(self, stem: str, tensors: Mapping[str, "torch.Tensor"], metadata: Any) -> Path:
        """Write tensors and metadata to one file, since two could contradict each other after a kill."""
        import torch

        self._require_lock()
        if _METADATA in tensors:
            raise ValueError(f"the name {_METADATA} is reserved for the metadata")
        names = sorted(path.name for path in _steps(self._checkpoint_path).values())
        text = json.dumps({"checkpoints": names, "metadata": metadata}, separators=(",", ":")).encode()
        # Stored as a tensor: a safetensors header may have at most 100 MB, which long tables of metrics exceed.
        stored = {**tensors, _METADATA: torch.frombuffer(bytearray(text), dtype=torch.uint8)}
        return write_file(self.path, f"{stem}.{{digest}}.safetensors", tensor_pieces(stored))[0]

    def _read(self, path: Path) -> tuple[dict[str, "torch.Tensor"], list[str], Any]:
        """Return the tensors, the names of the checkpoints and the metadata of a file, and check that these exist."""
        tensors = read_tensors(check_named_file(path, self.address))
        stored = json.loads(tensors.pop(_METADATA).numpy().tobytes())
        for name in stored["checkpoints"]:
            if not (self._checkpoint_path / name).exists():
                raise damaged(self._checkpoint_path / name, "missing", self.address)
        return tensors, stored["checkpoints"], stored["metadata"]

    def _remove_states(self, but: Path | None) -> None:
        for path in self.path.glob("step-*.safetensors"):
            if path != but:
                path.unlink()

    def _remove_checkpoints(self, but: list[str] | tuple[()]) -> None:
        for path in self._checkpoint_path.glob("step-*.safetensors"):
            if path.name not in but:
                path.unlink()


def _steps(directory: Path) -> dict[int, Path]:
    """Map each step to its file; if a step has two, to the one written last."""
    paths = [path for path in directory.glob("step-*.safetensors") if _STEP.fullmatch(path.name)]
    paths.sort(key=lambda path: path.stat().st_mtime_ns)
    return {int(path.name.split(".")[0].removeprefix("step-")): path for path in paths}
