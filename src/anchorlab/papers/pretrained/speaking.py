"""Open the model of a setting as a speaker: its weights on this machine, or its name at a server."""

from anchorlab.errors import SpecError
from anchorlab.language.asking import LocalSpeaker, Speaker
from anchorlab.language.endpoint import is_address, read_address
from anchorlab.papers.pretrained.opening import ModelSetting, described, open_model, untrained_model
from anchorlab.runs.atomic_files import file_name
from anchorlab.studies.observation_context import ObservationContext


def open_speaker(setting: ModelSetting, context: ObservationContext) -> Speaker:
    """Open the model of a setting.

    At a server it is asked as `context.access` says; its answers are kept in a file of `context.answers` that all
    studies and profiles share, so that no question is put twice.

    Errors: as `open_model`, or `Access.open`; `SpecError` for a revision at a server.
    """
    if not is_address(setting.model):
        return LocalSpeaker(open_model(setting, context))
    if setting.revision is not None:
        raise SpecError("revision", "a model behind a server has none", "leave it out")
    folder = context.answers or context.folder
    return context.access.open(setting.model, folder / file_name(f"{setting.model}.jsonl"))


def untrained_speaker(speaker: Speaker) -> Speaker | None:
    """Return a model of the same architecture with random weights; None for one behind a server."""
    return LocalSpeaker(untrained_model(speaker.model)) if isinstance(speaker, LocalSpeaker) else None


def described_speaker(setting: ModelSetting, speaker: Speaker) -> str:
    """Return what is known of the model of a setting, for the provenance of its answers."""
    if isinstance(speaker, LocalSpeaker):
        return described(setting, speaker.model)
    url, name = read_address(setting.model)
    return f"{name} at {url}"
