"""The checkpoints of a training run, one after the other: each is read, checked, measured and removed."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import TypeAdapter

from anchorlab.engine import Status
from anchorlab.errors import SpecError
from anchorlab.language import pretrained
from anchorlab.language.checkpoints import Fault, StoredWeights, checkpoint_folder, faults, read_weights
from anchorlab.papers.language.along_training.measuring import Measuring, measure
from anchorlab.papers.language.along_training.trained_here import Training, train_checkpoints
from anchorlab.papers.pretrained.opening import ModelSetting, check_weights, described
from anchorlab.plain import MOST_BYTES_OF_RESULTS, parse_json, read_data
from anchorlab.runs.atomic_files import write_file
from anchorlab.studies.observation_context import ObservationContext

ALL, TRAINED = Measuring(), Training()

HERE = "trained here"
"""The name of small models that the study trains itself."""

SOME_STEPS = (0, *(2**power for power in range(10)), 1000, 2000, 4000, 8000, 14_000, 32_000, 64_000, 143_000)
"""Steps spread over training on a logarithmic scale, with 14 000, at which the paper gives numbers."""


@dataclass(frozen=True)
class Setting(ModelSetting):
    """The checkpoints, and the measurements at each."""

    model: str = "EleutherAI/pythia-160m"
    # the training steps, each a revision such as `step1000` or, in a local folder, a folder of that name
    steps: tuple[int, ...] = SOME_STEPS
    measuring: Measuring = ALL  # the numbers of texts and prompts, and the truncations
    # for the model `HERE`: a seed for each training, and how the models are trained
    seeds: tuple[int, ...] = ()
    training: Training = TRAINED


@dataclass(frozen=True)
class Checkpoint:
    """Results of a checkpoint: its faults, its weights' digests, and its numbers unless a fault makes it unusable."""

    step: int
    faults: tuple[Fault, ...]
    weights: StoredWeights
    numbers: Mapping[str, float] | None
    model: str = ""


def measure_trainings(setting: Setting, context: ObservationContext) -> tuple[tuple[Checkpoint, ...], ...]:
    """Return the results of every training's checkpoints; measure and keep those that no earlier run measured."""
    if setting.revision is not None:
        raise SpecError("revision", "the study goes through all of them", "leave it out")
    check_weights(setting)
    if setting.seeds and setting.model != HERE:
        raise SpecError("model", "this profile trains its own models", "choose --profile scaled or paper")
    if setting.model != HERE:
        return (_along(setting, context.folder, context, lambda: setting.model),)
    found = []
    for seed in setting.seeds:
        with TemporaryDirectory() as place:  # a killed training starts again
            made = cache(partial(_train, setting, context, Path(place), seed))
            found.append(_along(setting, context.folder / f"seed{seed}", context, made))
    return tuple(found)


def _train(setting: Setting, context: ObservationContext, folder: Path, seed: int) -> str:
    """Train a model of the setting, and return the folder of its checkpoints."""
    last = max(setting.steps)

    def progress(step: int) -> None:
        if step % 10 == 0:
            context.report(Status(last, step, f"training seed {seed}"))

    train_checkpoints(folder, seed, setting.steps, setting.training, progress)
    return str(folder)


def _along(
    setting: Setting, folder: Path, context: ObservationContext, model: Callable[[], str]
) -> tuple[Checkpoint, ...]:
    """Return the results of one training's checkpoints; `model` gives the model's name or folder if any are missing."""
    folder.mkdir(parents=True, exist_ok=True)
    found: list[Checkpoint] = []
    for place, step in enumerate(sorted(setting.steps)):
        context.report(Status(len(setting.steps), place, f"step {step}"))
        path = folder / f"step{step}.json"
        kept = _kept(path, setting, found)
        if kept is None:
            kept = _measure(model(), step, found, setting, context)
            content = {"setting": _key(setting), "after": [one.step for one in found], **asdict(kept)}
            write_file(path.parent, path.name, [json.dumps(content).encode()])
        found.append(kept)
    context.report(Status(len(setting.steps), len(setting.steps), "checkpoints"))
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
    found = {"model": setting.model, **asdict(setting.measuring)}
    if setting.model == HERE:
        found |= {"training": asdict(setting.training), "steps": setting.steps}
    content: dict[str, Any] = json.loads(json.dumps(found))
    return content


def _kept(path: Path, setting: Setting, before: list[Checkpoint]) -> Checkpoint | None:
    """Return an earlier run's results under the same setting, after the same checkpoints; None if there are none."""
    try:
        content = parse_json(read_data(path, MOST_BYTES_OF_RESULTS))
        if content["setting"] != _key(setting) or content["after"] != [one.step for one in before]:
            return None
        return TypeAdapter(Checkpoint).validate_python(content)
    except (OSError, ValueError, KeyError, TypeError):  # missing, cut or of another version
        return None
