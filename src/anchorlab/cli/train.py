"""`anchorlab train`."""

from pathlib import Path

from anchorlab.cli.options import Fields, merged, nested, read_seeds, read_task, values
from anchorlab.cli.output import console, print_json, print_table, progress
from anchorlab.engine import run
from anchorlab.models import default_model, parse_model
from anchorlab.runs import Store
from anchorlab.training import Experiment, Members, Recipe
from anchorlab.training.defaults import default_recipe
from anchorlab.training.trainer import ExecutionName


def train(
    task: str,
    /,
    *,
    seeds: str = "0:3",
    options: Fields = None,
    model: Fields = None,
    recipe: Fields = None,
    members: Fields = None,
    store: Path | None = None,
    workers: int | None = None,
    device: str = "cpu",
    execution: ExecutionName = "auto",
    json: bool = False,
) -> None:
    """Train one model per seed on a task, and keep the run.

    Parameters
    ----------
    task
        A name from `anchorlab tasks`, or a TOML file that declares an anchor function.
    seeds
        `0:10` for the seeds 0 to 9, or a list such as `0,3,5`.
    options
        Options of the task, such as `--task.length 12`.
    model
        Options of the model, such as `--model.layers 4` or `--model.kind recall`.
    recipe
        Options of the recipe, such as `--recipe.learning-rate 1e-3` or `--recipe.data.size 600`.
    members
        What differs between members, one value per seed: `--members.learning-rate 1e-3,1e-4,1e-5`.
    store
        The folder of runs; by default `runs`, or what $ANCHORLAB_STORE says.
    workers
        Processes that share the members on a CPU; by default one for every core.
    device
        `cpu` or `cuda`.
    execution
        `member` by member, `mapped` over all at once, or whichever is the faster here.
    json
        The last numbers as JSON, for scripts.
    """
    chosen = read_task(task, options)
    wanted = values(nested(model))
    default = default_model(chosen.shape)
    base = default.model_dump(mode="json")
    spec = parse_model(merged(base, wanted) if wanted.get("kind", base["kind"]) == base["kind"] else wanted)
    experiment = Experiment(
        chosen,
        spec,
        Recipe.parse(_recipe_data(default_recipe(chosen), values(nested(recipe))), "recipe"),
        Members.parse({**values(nested(members)), "seeds": read_seeds(seeds)}, "members"),
        label=Path(task).stem if task.endswith(".toml") else task,
    )
    with progress(quiet=json) as report:
        trained = run([experiment], Store(store), workers, device, execution, report)[0]
    metrics = trained.metrics
    last = metrics.filter(metrics["step"] == metrics["step"].max())
    means = last.group_by("split", "group", "edit", "metric", maintain_order=True).agg(
        _mean("mean"), _mean("min"), _mean("max")
    )
    if json:
        print_json({"run": trained.run.address, "path": str(trained.run.path), "last": means.to_dicts()})
        return
    print_table(means.columns, means.rows(), title=f"{experiment.cell.label} after {experiment.steps} steps")
    console.print(f"run {trained.run.address} lies in {trained.run.path}")


def _recipe_data(default: Recipe, changes: dict[str, object]) -> dict[str, object]:
    """The default recipe with changes; a learning rate or weight decay goes to the optimiser."""
    for name in ("learning_rate", "weight_decay"):
        if name in changes:
            changes = merged(changes, {"optimiser": {name: changes.pop(name)}})
    if "duration" in changes and "schedule" not in changes and str(changes["duration"]).isdigit():
        default = default.replace(duration=max(1, int(str(changes["duration"]))))
        horizon = max(default.duration, default.schedule.warmup + 1) if default.schedule.kind != "constant" else 0
        changes = merged({"schedule": {"kind": "warmup_cosine", "horizon": horizon}}, changes)
    return merged(default.model_dump(mode="json"), changes)


def _mean(kind: str) -> object:
    import polars as pl

    value = pl.col("value")
    return {"mean": value.mean(), "min": value.min(), "max": value.max()}[kind].alias(kind)
