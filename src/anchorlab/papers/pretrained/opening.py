"""The pretrained model of a setting, the same architecture with random weights, and what reports say of a model."""

import copy
from dataclasses import dataclass

import torch

from anchorlab.errors import SpecError
from anchorlab.language import LanguageModel, pretrained, wrap
from anchorlab.language.endpoint import is_address
from anchorlab.papers.pretrained.tiny import tiny_model
from anchorlab.studies.observation_context import ObservationContext

TINY = "tiny"
"""The name of a small random model that needs no file; smoke profiles use it."""


@dataclass(frozen=True)
class ModelSetting:
    """The pretrained model of a study's setting; further fields are a study's own.

    Fields
        model: a name on Hugging Face's hub, a local folder, a `.gguf` file, `smollm2`, `gemma3`, or `tiny`; for
            studies that only ask, also one at a server, `http://127.0.0.1:8000/v1#NAME`
        revision: a branch, tag or commit on the hub
    """

    model: str = "smollm2"
    revision: str | None = None


def open_model(setting: ModelSetting, context: ObservationContext) -> LanguageModel:
    """Open the model of a setting. Errors: as `pretrained`; `SpecError` at a server."""
    check_weights(setting)
    if setting.model == TINY:
        if setting.revision is not None:
            raise SpecError("revision", f"{TINY} has none", "leave it out")
        return tiny_model().to(context.device)
    return pretrained(setting.model, setting.revision, download=context.download, device=context.device)


def check_weights(setting: ModelSetting) -> None:
    """Raise `SpecError` for a model behind a server, whose weights cannot be read."""
    if is_address(setting.model):
        raise SpecError("endpoint", "this study needs the model's weights", "give a model on this machine or the hub")


def untrained_model(model: LanguageModel, seed: int = 1) -> LanguageModel:
    """Return a model of the same architecture and tokenizer, with the initial weights that transformers draws."""
    theirs = model.hugging_face
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        drawn = type(theirs)(copy.deepcopy(theirs.config))
    drawn = drawn.to(device=theirs.device, dtype=theirs.dtype)
    return wrap(drawn, model.tokenizer, f"{model.name}, untrained")


def described(setting: ModelSetting, model: LanguageModel) -> str:
    """Return the name, revision and number of parameters of a model, for the provenance of its numbers."""
    count = sum(weight.numel() for weight in model.hugging_face.parameters())
    size = f"{count / 1e6:.1f} M" if count >= 1e6 else str(count)
    at = "" if setting.revision is None else f" at {setting.revision}"
    return f"{setting.model}{at}, {size} parameters"
