"""The study that the faults meet: a second of training, which leaves every kind of file that a store has."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from torch import Tensor

from anchorlab.engine import Ray
from anchorlab.engine import run as train
from anchorlab.engine.backend import Backend
from anchorlab.engine.folder import Folder
from anchorlab.findings import Findings, at_most
from anchorlab.runs import Store
from anchorlab.studies import Analysis, Profile, Study, at_end, claim, findings_directory, run_study, running
from anchorlab.training import AdamW, Evaluation, Experiment, Stop, Times, TrainedRun, trainer
from tests.engine.killed import results
from tests.small_experiments import SAMPLE, STREAM, experiment

PROFILE = "quick"

OFTEN = {"evaluation": Evaluation(every=6, size=8), "checkpoints": Times(every=8), "precision": "float32"}
RATES = (1e-3, 3e-3, 1e-2)
STOP = Stop(metric="loss", split="train", value=5.2, direction="below")


def experiments(steps: int) -> list[Experiment]:
    """Return trainings of three members: on a sample, on a stream, with a stop rule, and from the end of the first.

    Three more are tiny and differ only in their rates, so that they are trained as one ensemble.
    """
    first = experiment("decoder", SAMPLE, duration=steps, **OFTEN)
    tiny = [experiment("associative", SAMPLE, duration=steps, optimiser=AdamW(rate), **OFTEN) for rate in RATES]
    return [
        first,
        experiment("recall", STREAM, duration=steps, **OFTEN),
        experiment("decoder", SAMPLE, duration=steps + 1, **OFTEN, stop=STOP),
        replace(experiment("decoder", SAMPLE, duration=steps // 2, **OFTEN), start=first),
        *tiny,
    ]


def analyse(runs: Sequence[TrainedRun], steps: int) -> Analysis:
    weights = [run.ensemble().weights for run in runs]
    sizes = [sum(float(value.double().square().sum()) for value in one.values()) for one in weights]
    return Analysis((at_end(runs[0], "train", "loss"), sizes))


@claim("The loss ends low", at="", paper="low", band=at_most(10.0))
def loss(seen) -> Tensor:
    """Training loss."""
    return seen[0]


@claim("The weights are finite", at="", paper="finite", band=at_most(1e9))
def size(seen) -> float:
    """Sum of the squared weights of all runs."""
    return sum(seen[1])


STUDY = Study(
    "own/faults",
    "Faults.\n\nA study to be hurt.",
    (loss, size),
    analyse,
    {PROFILE: Profile(24, "A second of training.")},
    experiments=experiments,
)


def keep_often() -> None:
    """Let this process keep a state after every step."""
    trainer._LEAST_TRAINING_PER_KEEPING = 0
    running.run = partial(train, keep_every=0.0)


def run_the_study(root: Path, on: str = "local", workers: int = 1) -> Findings:
    """Run the study to its end: on this machine, with workers on a `folder`, or on the Ray cluster at an address."""
    backend: str | Backend = on
    if on == "folder":
        backend = Folder(pause=0.05)
    elif on != "local":
        backend = Ray(on, modules=("tests.engine.slowed",), pause=0.05)
    return run_study(STUDY, PROFILE, Store(root), workers, progress=False, on=backend)  # type: ignore[arg-type]


def findings_of(root: Path) -> str:
    """Return the kept findings, but for the time that they took and the number of runs that were there already."""
    path = findings_directory(Store(root), STUDY.name, PROFILE) / "findings.json"
    found = Findings.from_json(path.read_bytes())
    made = replace(found.provenance, seconds=0.0, reused=0, commit="")
    return replace(found, provenance=made).to_json()


def outcome_of_runs(root: Path) -> dict[str, bytes]:
    """Return what runs are left, but for when and by whom they were trained."""
    store = Store(root)
    specs = {f"{run.address}/spec": repr((dict(run.spec), run.label)).encode() for run in store.runs()}
    runs = {name: data for name, data in results(root).items() if name.partition("/")[0] not in ("studies", "index")}
    return runs | specs


def outcome(root: Path) -> dict[str, bytes]:
    """Return everything that the study leaves, but for when and by whom it was run."""
    return {**outcome_of_runs(root), "findings": findings_of(root).encode()}
