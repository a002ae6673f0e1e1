"""`anchorlab train`."""

from pathlib import Path
from typing import Annotated, Literal
from warnings import catch_warnings, simplefilter

from cyclopts import Parameter

from anchorlab.cli.backend_options import PlaceOptions
from anchorlab.cli.complete import ModelFields, TaskName
from anchorlab.cli.experiment import read_experiment
from anchorlab.cli.fields import Fields, part
from anchorlab.cli.output import Flag, Json, counted, print_json, print_metrics, print_problem, print_text, progress
from anchorlab.errors import DivergedWarning


def train(
    task: TaskName,
    /,
    *,
    seeds: str = "0:3",
    task_fields: Annotated[Fields, part("task")] = None,
    model: ModelFields = None,
    recipe: Annotated[Fields, part("recipe")] = None,
    members: Annotated[Fields, part("members")] = None,
    store: Path | None = None,
    workers: int | None = None,
    device: str = "cpu",
    execution: Literal["auto", "member", "mapped"] = "auto",
    json: Json = False,
    dry_run: Flag = False,
    where: Annotated[PlaceOptions | None, Parameter(name="*", group="Where to train")] = None,
) -> int:
    """Train one model per seed on a task and store the run; exit with 1 if a member diverged.

    Parameters
    ----------
    task
        Name from `anchorlab tasks`, or a TOML file that declares a task.
    seeds
        Seeds of the members: `0:10` for 0 to 9, or a list such as `0,3,5`.
    task_fields
        Argument of the task, such as `--task.length 12`.
    model
        Setting of the model, such as `--model.layers 4` or `--model.kind recall`.
    recipe
        Setting of the training, such as `--recipe.learning-rate 1e-3` or `--recipe.data.size 600`.
    members
        Setting with one value per seed, such as `--members.learning-rate 1e-3,1e-4,1e-5`.
    store
        Folder of stored runs and findings; by default $ANCHORLAB_STORE, or `runs`.
    workers
        Number of CPU processes that share the members; by default as many as suit the work.
    device
        `cpu` or `cuda`.
    execution
        `member`: one member after the other; `mapped`: all at once; `auto`: the faster of the two.
    json
        Print the last metrics as JSON.
    dry_run
        Train nothing: print what would be trained, and the time, memory and disk that it would take.
    """
    from anchorlab.cli.forecast import show_forecast
    from anchorlab.engine import forecast, run
    from anchorlab.engine.run import divergence
    from anchorlab.runs import Store
    from anchorlab.runs.metrics import last_metrics

    experiment = read_experiment(task, seeds, task_fields, model, recipe, members)
    if dry_run:
        with progress(quiet=json) as report:
            found = forecast([experiment], Store(store), workers, device, execution, report)
        show_forecast(found, device, json)
        return 0
    on = (where or PlaceOptions()).backend(device)
    trained_in = Store(store)
    with progress(quiet=json) as report, catch_warnings():
        simplefilter("ignore", DivergedWarning)
        trained = run([experiment], trained_in, workers, device, execution, report, on=on)[0]
    last, diverged = last_metrics(trained.metrics), trained.diverged
    if json:
        place = {"run": trained.run.address, "path": str(trained.run.place)}
        seeds_lost = sorted({experiment.members.seeds[member] for member in diverged})
        print_json({**place, "diverged": seeds_lost, "last": last.to_dicts()})
    else:
        members_text = counted(len(experiment.members), "member")
        print_metrics(last, f"{experiment.cell.label}: {members_text} after {experiment.steps} steps")
        print_text(f"run {trained.run.address} in {trained.run.place}", wrapped=False)
    if problem := divergence(trained_in, {trained.run.address: trained.run.label}):  # also of a run that was kept
        print_problem(problem)
    return 1 if diverged else 0
