"""`anchorlab train`."""

from pathlib import Path
from typing import Annotated, Literal

from anchorlab.cli.experiment import read_experiment
from anchorlab.cli.fields import Fields, part
from anchorlab.cli.output import Json, print_json, print_text, progress
from anchorlab.cli.summary import diverged_seeds, finite_or_none, members_text, print_metrics


def train(
    task: str,
    /,
    *,
    seeds: str = "0:3",
    task_fields: Annotated[Fields, part("task")] = None,
    model: Annotated[Fields, part("model")] = None,
    recipe: Annotated[Fields, part("recipe")] = None,
    members: Annotated[Fields, part("members")] = None,
    store: Path | None = None,
    workers: int | None = None,
    device: str = "cpu",
    execution: Literal["auto", "member", "mapped"] = "auto",
    json: Json = False,
) -> None:
    """Train one model per seed on a task, and keep the run.

    Parameters
    ----------
    task
        A name from `anchorlab tasks`, or a TOML file that declares an anchor function.
    seeds
        `0:10` for the seeds 0 to 9, or a list such as `0,3,5`.
    task_fields
        An argument of the task, such as `--task.length 12`.
    model
        A field of the model, such as `--model.layers 4` or `--model.kind recall`.
    recipe
        A field of the recipe, such as `--recipe.learning-rate 1e-3` or `--recipe.data.size 600`.
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
    from anchorlab.engine import run
    from anchorlab.runs import Store
    from anchorlab.runs.metrics import last_metrics

    experiment = read_experiment(task, seeds, task_fields, model, recipe, members)
    with progress(quiet=json) as report:
        trained = run([experiment], Store(store), workers, device, execution, report)[0]
    last, diverged = last_metrics(trained.metrics), diverged_seeds(trained.metrics)
    if json:
        shown = [{name: finite_or_none(value) for name, value in row.items()} for row in last.to_dicts()]
        run_told = {"run": trained.run.address, "path": str(trained.run.path)}
        print_json({**run_told, "diverged": diverged, "last": shown})
        return
    members_told = members_text(len(experiment.members))
    print_metrics(last, f"{experiment.cell.label}: {members_told} after {experiment.steps} steps")
    print_text(f"run {trained.run.address} lies in {trained.run.path}", wrapped=False)
    if diverged:
        seeds_told = ", ".join(map(str, diverged))
        print_text(f"diverged, with numbers that are not finite: seeds {seeds_told}; lower the learning rate or clip")
