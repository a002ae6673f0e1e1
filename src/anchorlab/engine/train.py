"""Train an ensemble on a task in one call."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch import nn

from anchorlab.engine.backend import Backend
from anchorlab.engine.run import On, run
from anchorlab.errors import SpecError
from anchorlab.models import ModelSpec, default_model, parse_model
from anchorlab.progress import Report, reported
from anchorlab.runs import Store
from anchorlab.tasks import Task
from anchorlab.tasks.build import as_task
from anchorlab.training import Experiment, Members, Recipe, TrainedRun
from anchorlab.training.recipe import default_recipe
from anchorlab.training.trainer import ExecutionName


def train(
    task: Task | str | Path,
    model: ModelSpec | str | None = None,
    recipe: Recipe | None = None,
    seeds: int | str | Iterable[int] | Members = (0,),
    store: Store | str | Path | None = None,
    workers: int | None = None,
    device: str = "cpu",
    execution: ExecutionName = "auto",
    report: Report | None = None,
    start: TrainedRun | None = None,
    progress: bool | None = None,
    on: On | Backend = "local",
) -> TrainedRun:
    """Train one member per seed and keep the run, or read the run if the store already contains it.

    Args:
        task: a task, its name or its TOML file
        model: the architecture, or its kind for the default size; when None, `default_model` of the task's shape, or
            the model of `start`
        recipe: how to train; `default_recipe` of the task when None
        seeds: one seed per member, their number, or text as on the command line: 10 and `0:10` mean the seeds
            0 to 9
        store: where the run is kept, a store or its directory; `Store()` when None
        workers: the number of processes that share the members on a CPU. None chooses: only this process for less than
            about half a minute of work, else one process per core. A script that defines a task or a model needs
            `if __name__ == "__main__":` for several processes.
        device: `cpu` or `cuda`
        execution: `member` trains one member after another, `mapped` all at once, `auto` chooses the faster way for the
            device
        report: called with the status a few times per second, in place of showing it
        start: a run whose members are trained further, with its model unless `model` is given
        progress: whether to show a bar with the share done and the time left, once training has taken two seconds. None
            shows it on a terminal and in a notebook, True also in logs, as plain lines.
        on: `local`, or `ray` or `slurm` to train elsewhere; see `anchorlab.engine.run`

    Returns: the finished run. A `DivergedWarning` names the members that diverged, as `run.diverged` does.

    Errors: `SpecError` that names the field; `StoreError` for a damaged store.

    >>> run = train("anchor/identity", seeds=10)  # doctest: +SKIP
    >>> run.metric("accuracy", split="test")  # doctest: +SKIP
    """
    if isinstance(model, str):
        model = parse_model({"kind": model})
    if model is not None and not isinstance(model, ModelSpec):
        remedy = "use al.register_module" if isinstance(model, nn.Module) else "write al.DecoderSpec(...)"
        raise SpecError("model", f"{_name(model)} is not a model spec", remedy)
    if recipe is not None and not isinstance(recipe, Recipe):
        raise SpecError("recipe", f"{_name(recipe)} is not a recipe", "write al.Recipe(...)")
    if start is not None and not isinstance(start, TrainedRun):
        raise SpecError("start", f"{_name(start)} is not a run", "give what al.train or al.zoo(NAME) returned")
    chosen, store, members = as_task(task), Store.of(store), Members.of(seeds)
    before = None if start is None else start.experiment
    model = model or (default_model(chosen.shape) if before is None else before.model)
    experiment = Experiment(chosen, model, recipe or default_recipe(chosen), members, start=before)
    with reported(report, progress) as show:
        return run([experiment], store, workers, device, execution, show, on=on)[0]


def _name(value: Any) -> str:
    """Return the name of a class, or of a value's class."""
    return value.__name__ if isinstance(value, type) else type(value).__name__
