"""Save one trained model as a folder, and load it: its weights as safetensors, its specification as JSON."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from torch import nn

from anchorlab.axes import TaskShape
from anchorlab.errors import SpecError, StoreError
from anchorlab.models import ModelSpec, parse_model
from anchorlab.plain import parse_json, read_data
from anchorlab.runs.atomic_files import write_file
from anchorlab.runs.environment import environment
from anchorlab.runs.tensor_file import read_tensors, tensor_pieces
from anchorlab.spec import Spec
from anchorlab.training.ensemble import Ensemble, build
from anchorlab.training.executions import member_module

SPECIFICATION, WEIGHTS = "model.json", "model.safetensors"
_AGAIN = "save it again with run.save_pretrained"


class SavedModel(Spec):
    """The content of `model.json`.

    Fields
        format: the version of this file's fields
        environment: the versions, platform and commit that wrote it
        model: the specification of the architecture
        shape: the task's inputs and outputs, for which the model is built
        sha256: the SHA-256 of the file of weights
        origin: where the weights come from: task, run, label, seed, member and step
    """

    format: Literal[1] = 1
    environment: dict[str, str | None]
    model: dict[str, Any]
    shape: TaskShape
    sha256: str
    origin: dict[str, Any]


def save_model(
    module: nn.Module,
    folder: str | Path,
    spec: ModelSpec,
    shape: TaskShape,
    origin: Mapping[str, Any],
    overwrite: bool = False,
) -> Path:
    """Write a module to a folder, which is created if needed, and return the folder.

    Tied weights are written under each of their names, so that `module.load_state_dict` accepts the file directly.

    Errors: `SpecError` for a file in place of the folder, and for a folder that holds a saved model already, unless
    `overwrite`; `StoreError` for a folder that cannot be written.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise SpecError("folder", f"{folder} is a file", "name a folder")
    if not overwrite and any((folder / name).exists() for name in (SPECIFICATION, WEIGHTS)):
        raise SpecError("folder", f"{folder} holds a saved model already", "name another one, or add overwrite=True")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{folder}: cannot be made: {error.strerror or error}") from error
    _, written = write_file(folder, WEIGHTS, tensor_pieces({**dict(module.named_buffers()), **module.state_dict()}))
    saved = SavedModel(
        environment=environment(),
        model=spec.model_dump(mode="json"),
        shape=shape,
        sha256=written.sha256,
        origin=dict(origin),
    )
    # last, so that a folder with a specification has its weights
    write_file(folder, SPECIFICATION, [(json.dumps(saved.model_dump(mode="json"), indent=1) + "\n").encode()])
    return folder


def load_pretrained(folder: str | Path) -> nn.Module:
    """Open a model that `run.save_pretrained` wrote, as a module in evaluation mode on the CPU.

        model = al.load_pretrained("identity-model")
        model(tokens)  # [batch position output], the same bits as before

    A user's own kind of model must be registered first, by importing the file that does so. Pretrained language models
    are opened with `al.pretrained`.

    Errors: `SpecError` for a folder without a saved model, a damaged or missing file, and weights that do not fit the
    model.
    """
    folder = Path(folder)
    saved = _read(folder)
    if not isinstance(kind := saved.model.get("kind"), str) or kind not in ModelSpec.registry:
        problem = f"no model is registered as {kind!r}"
        raise SpecError(str(folder / SPECIFICATION), problem, "import the file that registers it")
    module = build(parse_model(saved.model, f"{folder / SPECIFICATION}: model"), saved.shape)
    path = folder / WEIGHTS
    if not path.is_file():
        raise SpecError(str(path), "is missing", _AGAIN)
    with path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != saved.sha256:
            raise SpecError(str(path), "is damaged, or of another model", _AGAIN)
    tensors = read_tensors(path)
    unique = [*module.named_parameters(), *module.named_buffers()]
    ours = {**dict(unique), **module.state_dict()}
    for name in {**ours, **tensors}:
        if name not in ours or name not in tensors or ours[name].shape != tensors[name].shape:
            problem = f"{name} does not fit the model {kind!r} as it is registered"
            raise SpecError(str(path), problem, "register the model that was saved")
    trainable = tuple(name for name, value in module.named_parameters() if value.requires_grad)
    return member_module(
        Ensemble(module, {name: tensors[name].unsqueeze(0) for name, _ in unique}, trainable), 0
    ).eval()


def _read(folder: Path) -> SavedModel:
    """Return the specification in a folder. Errors: `SpecError` that names the file and the remedy."""
    path = folder / SPECIFICATION
    if not folder.is_dir():
        raise SpecError("folder", f"there is no folder {folder}", "give one that run.save_pretrained wrote")
    if not path.is_file():
        other = (folder / "config.json").exists()
        remedy = "open a language model with al.pretrained" if other else "give one that run.save_pretrained wrote"
        raise SpecError("folder", f"{folder} holds no {SPECIFICATION}", remedy)
    try:
        data = parse_json(read_data(path, follow=True))
    except (OSError, ValueError):
        raise SpecError(str(path), "is damaged", _AGAIN) from None
    if isinstance(data, dict) and isinstance(version := data.get("format"), int) and version > 1:
        raise SpecError(str(path), f"has format {version}, this version reads 1", "update anchorlab")
    try:
        return SavedModel.parse(data)
    except SpecError as error:
        raise SpecError(f"{path}: {error.field}", error.problem, error.remedy or _AGAIN) from None
