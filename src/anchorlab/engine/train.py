"""Train an ensemble on a task in one call, or compare several learners."""

import math
import shutil
import tempfile
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from anchorlab.engine.driver import Tally
from anchorlab.engine.modules import refuse_in_import
from anchorlab.engine.plan import check_fits, checked_device, choose_workers
from anchorlab.engine.pool import Backend
from anchorlab.engine.run import On, check_execution, divergence, run
from anchorlab.errors import DivergedWarning, SpecError
from anchorlab.models import ModelSpec, default_model, parse_model
from anchorlab.models.cpu import with_threads
from anchorlab.progress import Report, reported
from anchorlab.runs import Store
from anchorlab.runs.metrics import last_metrics
from anchorlab.tasks import Task
from anchorlab.tasks.build import as_task
from anchorlab.tasks.metrics import Losses
from anchorlab.training import ChunkKeeper, Ensemble, Experiment, Loss, Members, Recipe, TrainedRun, fit, merge
from anchorlab.training.cost import parameter_count
from anchorlab.training.evaluation import UNEDITED
from anchorlab.training.recipe import default_recipe
from anchorlab.training.trainer import ExecutionName

if TYPE_CHECKING:
    import polars

Learners = str | ModelSpec | Iterable[str | ModelSpec] | Mapping[str, str | ModelSpec]


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
    loss: Loss | type[Loss] | str | Losses | None = None,
    after_step: Callable[[int, Ensemble], object] | None = None,
) -> TrainedRun:
    """Train one member per seed and keep the run, or read the run if the store already contains it.

    A run with `after_step`, with a loss that is not registered, or with such a run as its `start` is not kept, since
    no address identifies it. It is trained in this process, and its files are removed with the returned object.

    Args:
        task: a task, its name or its TOML file
        model: the architecture, or its kind for the default size; when None, `default_model` of the task's shape, or
            the model of `start`
        recipe: how to train; `default_recipe` of the task when None
        seeds: one seed per member, their number, or text as on the command line: 10 and `0:10` mean the seeds
            0 to 9
        store: where the run is kept, a store or its directory; `Store()` when None; refused for a run that is not kept
        workers: the number of processes that share the members on a CPU. None chooses: only this process for less than
            about half a minute of work, else one process per core. A script that defines a task or a model needs
            `if __name__ == "__main__":` for several processes.
        device: `cpu` or `cuda`
        execution: `member` trains one member after another, `mapped` all at once, `auto` chooses the faster way for the
            device
        report: called with the status a few times per second, in place of showing it
        start: a run whose members are trained further, with its model unless `model` is given; a `store` that lacks it,
            as for a run of the zoo, trains it first
        progress: whether to show a bar with the share done and the time left, once training has taken two seconds. None
            shows it on a terminal and in a notebook, True also in logs, as plain lines.
        on: `local`, or `ray` or `slurm` to train elsewhere; see `anchorlab.engine.run`
        loss: what training minimises in place of the task's loss: one registered by `al.training.register_loss`, or its
            kind, or a function `loss(outputs, targets)` as described there. The metric `loss` is still the task's, and
            the metric `objective` is this one.
        after_step: called as `after_step(step, members)` after each optimiser step, from 1. `members.weights` has each
            weight by name, `[member ...]`, to read or to change in place; `members(inputs)` predicts.

    Returns: the finished run. A `DivergedWarning` names the members that diverged, as `run.diverged` does.

    Errors: `SpecError` that names the field, also for a loss of the wrong shape, or one that is not finite at an
    evaluation; `StoreError` for a damaged store.

    >>> run = train("anchor/identity", seeds=10)  # doctest: +SKIP
    >>> run.metric("accuracy", split="test")  # doctest: +SKIP
    """
    if isinstance(model, str):
        model = parse_model({"kind": model})
    if model is not None and not isinstance(model, ModelSpec):
        remedy = "use al.register_module" if isinstance(model, nn.Module) else "write al.DecoderSpec(...)"
        raise SpecError("model", f"{_name(model)} is not a model spec", remedy)
    _check_recipe(recipe)
    if start is not None and not isinstance(start, TrainedRun):
        raise SpecError("start", f"{_name(start)} is not a run", "give what al.train, al.run or al.zoo(NAME) returned")
    chosen, place, members = as_task(task), Store.of(store), Members.of(seeds)
    before = None if start is None else start.experiment
    model = model or (default_model(chosen.shape) if before is None else before.model)
    recipe = recipe or default_recipe(chosen)
    if loss is not None:
        if recipe.loss is not None:
            raise SpecError("loss", "the recipe has one, too", "give it once")
        recipe = recipe.replace(loss=loss)
    experiment = Experiment(chosen, model, recipe, members, start=before, after_step=after_step)
    with reported(report, progress) as show:
        if (part := experiment.not_storable) is not None and store is None:
            if on != "local" or (workers or 1) > 1:
                raise SpecError("workers", f"no other process can train with {part}", "leave it out, or leave out `on`")
            return _train_unstored(experiment, device, execution, show, None if start is None else start.ensemble())
        return run([experiment], place, workers, device, execution, show, on=on)[0]


def _train_unstored(
    experiment: Experiment, device: str, execution: ExecutionName, report: Report, start: Ensemble | None
) -> TrainedRun:
    """Train an experiment, from `start` if given, and return its run, whose files are removed with the object."""
    refuse_in_import()
    check_execution(execution)
    device = checked_device(device)
    check_fits([experiment], device)
    folder, name = Path(tempfile.mkdtemp(prefix="anchorlab-")), (experiment.cell.address, 0)
    directory = Store(folder).open(experiment.cell)
    weakref.finalize(directory, shutil.rmtree, folder, ignore_errors=True)
    tally = Tally({experiment.cell.address: experiment}, report)
    threads = choose_workers([experiment]) if device == "cpu" else torch.get_num_threads()
    with directory:
        with directory.chunk(0) as chunk, with_threads(threads):
            trained = fit(
                experiment,
                device,
                execution,
                ChunkKeeper(chunk),
                lambda progress: tally.update({name: experiment}, progress),
                math.inf,
                start,
            )
            chunk.finish({"rows": [list(row) for row in trained.rows]})
        merge(directory, experiment, [list(range(len(experiment.members)))])
    run = TrainedRun(directory, experiment)
    if (text := divergence([run])) is not None:
        warnings.warn(text, DivergedWarning, stacklevel=3)
    return run


def compare(
    task: Task | str | Path,
    models: Learners = ("decoder", "lstm", "fnn"),
    recipe: Recipe | None = None,
    seeds: int | str | Iterable[int] | Members = (0,),
    store: Store | str | Path | None = None,
    workers: int | None = None,
    device: str = "cpu",
    report: Report | None = None,
    progress: bool | None = None,
) -> "polars.DataFrame":
    """Train several learners with one recipe on the same data, unless the store already contains their runs.

    Args:
        task: a task or its name
        models: one or several model specs, or kinds of models in their default size, which is the anchor paper's; the
            keys of a mapping are the models' names in the table, otherwise their kinds
        recipe, seeds, store, workers, device, report, progress: as for `train`

    Returns: a table with columns model, parameters (of one member), split, group, metric, and mean, lowest and highest
        over the seeds at the end of training.

    Errors: `SpecError` that names the field, also for two models with the same name; `StoreError` for a damaged store.

    >>> compare("anchor/identity", {"small": LSTMSpec(width=64), "large": "lstm"}, seeds=5)  # doctest: +SKIP
    """
    _check_recipe(recipe)
    chosen, members, learners = as_task(task), Members.of(seeds), _named(models)
    recipe = recipe or default_recipe(chosen)
    experiments = [
        Experiment(chosen, model, recipe, members, f"{chosen.name or chosen.family} {name}")
        for name, model in learners.items()
    ]
    with reported(report, progress) as show:
        runs = run(experiments, store, workers, device, report=show)
    return _table(dict(zip(learners, runs, strict=True)))


def _named(models: Learners) -> dict[str, ModelSpec]:
    """Return the specs by given name, else by kind. Errors: `SpecError` for equal names, or no models."""
    models = [models] if isinstance(models, str | ModelSpec) or not isinstance(models, Iterable) else models
    kinds = ((model if isinstance(model, str) else getattr(model, "kind", _name(model)), model) for model in models)
    pairs = models.items() if isinstance(models, Mapping) else kinds
    learners: dict[str, ModelSpec] = {}
    for name, model in pairs:
        if name in learners:
            raise SpecError("models", f"two are called {name!r}", "name them: models={'small': ..., 'large': ...}")
        if not isinstance(model, str | Mapping | ModelSpec):
            raise SpecError(f"models.{name}", f"{_name(model)} is not a model spec", "write al.DecoderSpec()")
        learners[name] = parse_model({"kind": model} if isinstance(model, str) else model, f"models.{name}")
    if not learners:
        raise SpecError("models", "there are none", "give at least one, such as 'decoder'")
    return learners


def _table(runs: Mapping[str, TrainedRun]) -> "polars.DataFrame":
    import polars as pl

    tables = []
    for name, one in runs.items():
        count = parameter_count(one.experiment)
        last = last_metrics(one.metrics).filter(pl.col("edit") == UNEDITED).drop("edit")
        tables.append(last.select(pl.lit(name).alias("model"), pl.lit(count, pl.Int64).alias("parameters"), pl.all()))
    return pl.concat(tables)


def _check_recipe(recipe: Any) -> None:
    if recipe is not None and not isinstance(recipe, Recipe):
        raise SpecError("recipe", f"{_name(recipe)} is not a recipe", "write al.Recipe(...)")


def _name(value: Any) -> str:
    return value.__name__ if isinstance(value, type) else type(value).__name__
