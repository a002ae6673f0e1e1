"""Train several learners on a task in one call, and tabulate their results."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from anchorlab.engine.run import run
from anchorlab.errors import SpecError
from anchorlab.models import ModelSpec, parse_model
from anchorlab.progress import Report, reported
from anchorlab.runs import Store
from anchorlab.runs.metrics import last_metrics
from anchorlab.tasks import Task
from anchorlab.tasks.build import as_task
from anchorlab.training import Experiment, Members, Recipe, TrainedRun
from anchorlab.training.cost import parameter_count
from anchorlab.training.evaluation import UNEDITED
from anchorlab.training.recipe import default_recipe

if TYPE_CHECKING:
    import polars

Learners = str | ModelSpec | Iterable[str | ModelSpec] | Mapping[str, str | ModelSpec]


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
    chosen = as_task(task)
    members = Members.of(seeds)
    learners = _named(models)
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
    models = [models] if isinstance(models, str | ModelSpec) else models
    pairs = models.items() if isinstance(models, Mapping) else [(_kind(model), model) for model in models]
    learners: dict[str, ModelSpec] = {}
    for name, model in pairs:
        if name in learners:
            raise SpecError("models", f"two are called {name!r}", "name them: models={'small': ..., 'large': ...}")
        learners[name] = parse_model({"kind": model} if isinstance(model, str) else model, f"models.{name}")
    if not learners:
        raise SpecError("models", "there are none", "give at least one, such as 'decoder'")
    return learners


def _kind(model: str | ModelSpec) -> str:
    return model if isinstance(model, str) else model.kind


def _table(runs: Mapping[str, TrainedRun]) -> "polars.DataFrame":
    """Return the final metrics of all runs as one table, with the model's name and number of parameters."""
    import polars as pl

    parts = []
    for name, one in runs.items():
        count = parameter_count(one.experiment)
        last = last_metrics(one.metrics).filter(pl.col("edit") == UNEDITED).drop("edit")
        parts.append(last.select(pl.lit(name).alias("model"), pl.lit(count, pl.Int64).alias("parameters"), pl.all()))
    return pl.concat(parts)
