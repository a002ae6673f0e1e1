"""Open the pretrained model of a setting or an untrained copy, and describe it for reports."""

import copy
from dataclasses import dataclass

from anchorlab.errors import SpecError
from anchorlab.language import LanguageModel, pretrained, wrap
from anchorlab.language.asking import LocalSpeaker, Speaker
from anchorlab.language.endpoint import Endpoint, is_address, read_address
from anchorlab.papers.pretrained.tiny import drawn_model, tiny_model
from anchorlab.runs.atomic_files import file_name
from anchorlab.studies.observation_context import ObservationContext

TINY = "tiny"
"""The name of a small random model that needs no file; smoke profiles use it."""


@dataclass(frozen=True)
class ModelSetting:
    """The pretrained model in a study's setting; studies add further fields."""

    # a name on Hugging Face's hub, a local folder, a `.gguf` file, `smollm2`, `gemma3`, or `tiny`; for studies that
    # only ask, also a model on a server, `http://127.0.0.1:8000/v1#NAME`
    model: str = "smollm2"
    revision: str | None = None  # a branch, tag or commit on the hub


def open_model(setting: ModelSetting, context: ObservationContext) -> LanguageModel:
    """Open the model of a setting. Errors: as `pretrained`; `SpecError` for a model on a server."""
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
    drawn = drawn_model(type(theirs), copy.deepcopy(theirs.config), seed)
    drawn = drawn.to(device=theirs.device, dtype=theirs.dtype)
    return wrap(drawn, model.tokenizer, f"{model.name}, untrained")


def described(setting: ModelSetting, model: LanguageModel) -> str:
    """Return the name, revision and number of parameters of a model, for the provenance of its numbers."""
    count = sum(weight.numel() for weight in model.hugging_face.parameters())
    size = f"{count / 1e6:.1f} M" if count >= 1e6 else str(count)
    at = "" if setting.revision is None else f" at {setting.revision}"
    return f"{setting.model}{at}, {size} parameters"


def open_speaker(setting: ModelSetting, context: ObservationContext) -> Speaker:
    """Open the model of a setting to ask it questions.

    A model on a server is asked according to `context.access`. All studies and profiles share a file of its answers in
    `context.answers`, so that no question is asked twice.

    Errors: as `open_model`, or `Endpoint`; `SpecError` for a revision of a model on a server.
    """
    if not is_address(setting.model):
        return LocalSpeaker(open_model(setting, context))
    if setting.revision is not None:
        raise SpecError("revision", "a model behind a server has none", "leave it out")
    folder = context.answers or context.folder
    return Endpoint(setting.model, folder / file_name(f"{setting.model}.jsonl"), context.access)


def untrained_speaker(speaker: Speaker) -> Speaker | None:
    """Return a model of the same architecture with random weights; None for a model on a server."""
    return LocalSpeaker(untrained_model(speaker.model)) if isinstance(speaker, LocalSpeaker) else None


def described_speaker(setting: ModelSetting, speaker: Speaker) -> str:
    """Describe the model of a setting, for the provenance of its answers."""
    if isinstance(speaker, LocalSpeaker):
        return described(setting, speaker.model)
    url, name = read_address(setting.model)
    return f"{name} at {url}"
