"""Chunks: some members of an unfinished run, trained by one process at a time."""

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
    """Where a chunk stood: the step, the tensors and the metadata that were handed to `write_state`."""

    step: int
    tensors: dict[str, "torch.Tensor"]
    metadata: Any


class ChunkDirectory:
    """The states, checkpoint parts and result of one chunk; writing needs the lock: `with run.chunk(0) as chunk:`.

    A chunk that is not open can be sent to another process, which opens it there. Every file's name holds a digest of
    its content, so that a damaged one is noticed. A chunk is resumed by `latest_state`, and done once it has a result.
    """

    def __init__(self, path: Path, address: str, wait: float = 0.0) -> None:
        self.path, self.address, self.wait = path, address, wait
        self._lock = Lock(path / "lock")

    def __enter__(self) -> "ChunkDirectory":
        """Takes the lock. Errors: `StoreError` that names the process which has it."""
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
        """Keeps everything needed to go on from `step`, in place of the state before.

        `metadata` is anything JSON can hold, NaN included. Checkpoints up to `step` are written before it.
        """
        kept = self._write(f"step-{step:08d}", tensors, metadata)
        self._remove_states(but=kept)

    def latest_state(self) -> ChunkState | None:
        """Where to go on; `None` at the beginning. Checkpoints written after that state are removed: they come again.

        Errors: `StoreError` that names the state, or a checkpoint written before it, when damaged or missing.
        """
        self._require_lock()
        if self.finished:
            raise StoreError(f"{self.path}: finished, has a result and no state; ask `finished` first")
        states = sorted(_steps(self.path).items())
        if not states:
            self._remove_checkpoints(but=())
            return None
        step, path = states[-1]
        tensors, checkpoints, metadata = self._read(path)
        self._remove_checkpoints(but=checkpoints)
        return ChunkState(step, tensors, metadata)

    def write_checkpoint(self, step: int, tensors: Mapping[str, "torch.Tensor"]) -> None:
        """Keeps this chunk's part of the weights at `step`."""
        self._require_lock()
        previous = _steps(self._checkpoint_path).get(step)
        name = f"step-{step:08d}.{{digest}}.safetensors"
        path, _ = write_file(self._checkpoint_path, name, tensor_pieces(tensors))
        if previous is not None and previous != path:
            previous.unlink()

    def checkpoints(self) -> list[int]:
        """The steps of which parts were kept, ascending."""
        return sorted(_steps(self._checkpoint_path))

    def read_checkpoint(self, step: int) -> dict[str, "torch.Tensor"]:
        """This chunk's part of the weights at `step`. Errors: `StoreError` that names it when damaged or missing."""
        path = _steps(self._checkpoint_path).get(step)
        if path is None:
            raise damaged(self._checkpoint_path, f"no checkpoint of step {step}", self.address)
        return read_tensors(check_named_file(path, self.address))

    def finish(self, result: Any) -> None:
        """Keeps the chunk's result, such as its rows of metrics (anything JSON can hold), and drops its state."""
        self._write("result", {}, result)
        self._remove_states(but=None)

    @property
    def finished(self) -> bool:
        """Whether the result is there."""
        return any(self.path.glob("result.*.safetensors"))

    def result(self) -> Any:
        """What was handed to `finish`. Errors: `StoreError` when unfinished, damaged, or without a checkpoint."""
        paths = sorted(self.path.glob("result.*.safetensors"))
        if not paths:
            raise StoreError(f"{self.path}: not finished; train the run again to go on from its last state")
        return self._read(paths[-1])[2]

    @property
    def _checkpoint_path(self) -> Path:
        return self.path / "checkpoints"

    def _require_lock(self) -> None:
        if not self._lock.held:
            raise RuntimeError(f"{self.path} is not open for writing: use `with run.chunk(index) as chunk:`")

    def _write(self, stem: str, tensors: Mapping[str, "torch.Tensor"], metadata: Any) -> Path:
        """Writes tensors and metadata as one file: two files could contradict each other after a kill."""
        import torch

        self._require_lock()
        if _METADATA in tensors:
            raise ValueError(f"the name {_METADATA} is taken by the metadata")
        names = sorted(path.name for path in _steps(self._checkpoint_path).values())
        text = json.dumps({"checkpoints": names, "metadata": metadata}, separators=(",", ":")).encode()
        # As a tensor: the header of a safetensors file is limited to 100 MB, which long tables of metrics exceed.
        stored = {**tensors, _METADATA: torch.frombuffer(bytearray(text), dtype=torch.uint8)}
        return write_file(self.path, f"{stem}.{{digest}}.safetensors", tensor_pieces(stored))[0]

    def _read(self, path: Path) -> tuple[dict[str, "torch.Tensor"], list[str], Any]:
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
    """The files of a directory by their step; of two for one step, the one written last."""
    paths = [path for path in directory.glob("step-*.safetensors") if _STEP.fullmatch(path.name)]
    paths.sort(key=lambda path: path.stat().st_mtime_ns)
    return {int(path.name.split(".")[0].removeprefix("step-")): path for path in paths}
