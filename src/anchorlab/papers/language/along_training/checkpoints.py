"""The checkpoints of a training run, one after the other: each is read, checked, measured and removed."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from anchorlab.engine import Status
from anchorlab.errors import SpecError
from anchorlab.language import pretrained
from anchorlab.language.checkpoints import Fault, StoredWeights, checkpoint_folder, faults, read_weights
from anchorlab.papers.language.along_training.measuring import Measuring, measure
from anchorlab.papers.pretrained.opening import TINY, ModelSetting, check_weights, described
from anchorlab.papers.pretrained.tiny import train_tiny
from anchorlab.plain import MOST_BYTES_OF_RESULTS, parse_json, read_data
from anchorlab.runs.atomic_files import write_file
from anchorlab.studies.observation_context import ObservationContext

ALL = Measuring()

SOME_STEPS = (0, *(2**power for power in range(10)), 1000, 2000, 4000, 8000, 14_000, 32_000, 64_000, 143_000)
"""Steps spread over training on a logarithmic scale, with 14 000, at which the paper gives numbers."""


@dataclass(frozen=True)
class Setting(ModelSetting):
    """The checkpoints, and the measurements at each."""

    model: str = "EleutherAI/pythia-160m"
    # the training steps, each a revision such as `step1000` or, in a local folder, a folder of that name
    steps: tuple[int, ...] = SOME_STEPS
    measuring: Measuring = ALL  # the numbers of texts and prompts, and the truncations


@dataclass(frozen=True)
class Checkpoint:
    """Results of a checkpoint: its faults, its weights' digests, and its numbers unless a fault makes it unusable."""

    step: int
    faults: tuple[Fault, ...]
    weights: StoredWeights
    numbers: Mapping[str, float] | None
    model: str = ""


def observe(setting: Setting, context: ObservationContext) -> tuple[Checkpoint, ...]:
    """Measure every checkpoint that no earlier run has measured, and keep the results in the context."""
    if setting.revision is not None:
        raise SpecError("revision", "the study goes through all of them", "leave it out")
    check_weights(setting)
    context.folder.mkdir(parents=True, exist_ok=True)
    name, own = setting.model, context.folder / "tiny"
    if setting.model == TINY:
        train_tiny(own, setting.steps)
        name = str(own)
    found: list[Checkpoint] = []
    for place, step in enumerate(sorted(setting.steps)):
        context.report(Status(len(setting.steps), place, f"step {step}"))
        path = context.folder / f"step{step}.json"
        kept = _kept(path, setting, found)
        if kept is None:
            kept = _measure(name, step, found, setting, context)
            content = {"setting": _key(setting), "after": [one.step for one in found], **asdict(kept)}
            write_file(path.parent, path.name, [json.dumps(content).encode()])
        found.append(kept)
    context.report(Status(len(setting.steps), len(setting.steps), "checkpoints"))
    shutil.rmtree(own, ignore_errors=True)
    return tuple(found)


def _measure(
    name: str, step: int, before: list[Checkpoint], setting: Setting, context: ObservationContext
) -> Checkpoint:
    """Read the files of a checkpoint, and measure the model unless they have a fault that makes it unusable."""
    with checkpoint_folder(name, step, context.folder / "checkpoint", context.download) as folder:
        weights = read_weights(folder)
        wrong = faults(weights, {one.step: one.weights for one in before})
        if any(fault.unusable for fault in wrong):
            return Checkpoint(step, wrong, weights, None)
        try:
            model = pretrained(folder, device=context.device)
        except SpecError as error:
            if all(one.numbers is None for one in before):  # others would hardly open either
                raise
            return Checkpoint(step, (*wrong, Fault(f"cannot be opened: {error.problem}", unusable=True)), weights, None)
        model.name = f"{setting.model} at step {step}"
        return Checkpoint(step, wrong, weights, measure(model, setting.measuring), described(setting, model))


def _key(setting: Setting) -> dict[str, Any]:
    """What the numbers of a checkpoint depend on, apart from its files."""
    content: dict[str, Any] = json.loads(json.dumps({"model": setting.model, **asdict(setting.measuring)}))
    return content


def _kept(path: Path, setting: Setting, before: list[Checkpoint]) -> Checkpoint | None:
    """What an earlier run measured under the same setting, after the same checkpoints; None if it must be measured."""
    try:
        content = parse_json(read_data(path, MOST_BYTES_OF_RESULTS))
        if content["setting"] != _key(setting) or content["after"] != [one.step for one in before]:
            return None
        return TypeAdapter(Checkpoint).validate_python(content)
    except (OSError, ValueError, KeyError, TypeError):  # missing, cut or of another version
        return None
