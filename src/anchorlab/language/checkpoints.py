"""Checkpoints of a pretrained model along its training: fetch them one at a time, and find faults in their files."""

import hashlib
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.language.model_folder import check_files
from anchorlab.plain import parse_json, read_data

PYTHIA_STEPS = (0, *(2**power for power in range(10)), *range(1000, 143_001, 1000))
"""The 154 training steps at which the models of the Pythia family are published, as revisions `step0`, `step1` ..."""

_FILES = ("*.json", "*.safetensors", "*.txt", "*.model")  # files of a checkpoint; pickle files are never read

CONSTANTS = (".attention.bias", ".attn.bias", ".masked_bias", ".inv_freq")
"""Name endings of constants that older versions of transformers saved: masks and angles, the same at every step."""


def revision_of(step: int) -> str:
    """Return the name of a step's revision on the hub, or of its folder."""
    return f"step{step}"


@contextmanager
def checkpoint_folder(name: str, step: int, folder: Path, download: bool = False) -> Iterator[Path]:
    """Within `with`, provide the folder of a checkpoint's files, for `pretrained`.

    If `name` is a local folder, the checkpoint is its subfolder `step0`, `step1` and so on. Otherwise the hub's cache
    is used, or the files are downloaded into `folder`. A downloaded checkpoint is removed at the end, so that the disk
    holds only one at a time. If the hub lacks the revision, the folder is empty.

    Errors: `SpecError` if the checkpoint is not on this machine and may not be downloaded, and if a download fails.
    """
    place = _on_this_machine(name, step)
    if place is not None:
        yield place
        return
    if not download:
        raise SpecError("model", f"{name} at {revision_of(step)} is not on this machine", "allow --download")
    shutil.rmtree(folder, ignore_errors=True)  # left by a killed run
    folder.mkdir(parents=True)
    try:
        _download(name, step, folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _on_this_machine(name: str, step: int) -> Path | None:
    """Return the folder of a checkpoint, local or in the hub's cache; None if it must be downloaded."""
    local = Path(name).expanduser()
    if local.is_dir():
        if not (local / revision_of(step)).is_dir():
            raise SpecError("model", f"{name} has no folder {revision_of(step)}", "give a folder of checkpoints")
        return local / revision_of(step)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        found = snapshot_download(name, revision=revision_of(step), allow_patterns=list(_FILES), local_files_only=True)
    except LocalEntryNotFoundError:
        return None
    except HFValidationError:
        raise SpecError("model", f"there is no folder {name}", "give a folder or a name on the hub") from None
    return Path(found) if any(Path(found).glob("*.safetensors")) else None


def _download(name: str, step: int, folder: Path) -> None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import RevisionNotFoundError

    try:
        snapshot_download(name, revision=revision_of(step), local_dir=folder, allow_patterns=list(_FILES))
    except RevisionNotFoundError:
        return
    except Exception as error:  # noqa: BLE001 - errors of several libraries, all of one remedy
        said = " ".join(str(error).split())[:160]
        problem = f"{name} at {revision_of(step)} cannot be downloaded: {said}"
        raise SpecError("model", problem, "check the name and the network, and run it again") from None


@dataclass(frozen=True)
class StoredWeights:
    """Digests and types of the weights in a checkpoint's files, read before the model is opened.

    Fields
        matrices: a digest of the values of every matrix, by name; the same for the same values in another precision
        precision: the precision of the matrices, such as `float16`; several are joined by commas
        declared: the precision in the configuration; None if it gives none
        not_finite: the names of weights that hold NaN or infinity
    """

    matrices: Mapping[str, str]
    precision: str
    declared: str | None
    not_finite: tuple[str, ...]


@dataclass(frozen=True)
class Fault:
    """A fault of a checkpoint in words; `unusable` if no measurement on the checkpoint holds for its step."""

    text: str
    unusable: bool


def read_weights(folder: Path) -> StoredWeights:
    """Read the safetensors files of a checkpoint; a folder without any has no matrices.

    Errors: `SpecError` for a damaged file, a pipe or a device.
    """
    check_files(folder, "model")
    matrices, precisions, not_finite = {}, set(), []
    for name, value in _weights(folder):
        if not value.isfinite().all():
            not_finite.append(name)
        if value.ndim >= 2:
            same = value.float().add(0.0).contiguous()  # -0 becomes 0
            matrices[name] = hashlib.sha256(same.numpy().data).hexdigest()[:16]
            precisions.add(str(value.dtype).removeprefix("torch."))
    return StoredWeights(matrices, ", ".join(sorted(precisions)), _declared(folder / "config.json"), tuple(not_finite))


def _weights(folder: Path) -> Iterator[tuple[str, Tensor]]:
    """Yield every floating-point weight of a checkpoint with its name, one at a time."""
    from safetensors import SafetensorError, safe_open

    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, framework="pt") as file:
                for name in sorted(file.keys()):
                    value = file.get_tensor(name)
                    if value.is_floating_point() and not name.endswith(CONSTANTS):
                        yield name, value
        except SafetensorError as error:
            raise SpecError("model", f"{path} is damaged: {error}", "fetch it again") from None


def _declared(path: Path) -> str | None:
    try:
        config = parse_json(read_data(path, follow=True))
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        config = None
    if not isinstance(config, dict):
        raise SpecError("model", f"{path} is damaged", "fetch it again")
    found = config.get("dtype") or config.get("torch_dtype")
    return None if found is None else str(found)


def faults(weights: StoredWeights, earlier: Mapping[int, StoredWeights]) -> tuple[Fault, ...]:
    """Return the faults of a checkpoint, given the weights of earlier steps.

    The check is needed because some published checkpoints are missing, hold all or some matrices of another step, or
    are stored in another precision than the rest.
    """
    if not weights.matrices:
        return (Fault("is not there, or holds no safetensors file", unusable=True),)
    found = []
    if weights.not_finite:
        also = f" and {len(weights.not_finite) - 1} more" if len(weights.not_finite) > 1 else ""
        found.append(Fault(f"has values that are not finite, in {weights.not_finite[0]}{also}", unusable=True))
    own = weights.matrices.items()
    equal = {step: [name for name, digest in own if one.matrices.get(name) == digest] for step, one in earlier.items()}
    step, names = max(equal.items(), key=lambda item: len(item[1]), default=(0, []))
    if len(names) == len(own):
        found.append(Fault(f"has the weights of step {step}", unusable=True))
    elif names:
        text = f"{len(names)} of its {len(own)} matrices equal step {step}, such as {names[0]}"
        found.append(Fault(text, unusable=False))
    if weights.declared is not None and weights.precision != weights.declared:
        text = f"is stored in {weights.precision}, and its configuration says {weights.declared}"
        found.append(Fault(text, unusable=False))
    return tuple(found)
