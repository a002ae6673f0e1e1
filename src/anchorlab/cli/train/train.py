"""`anchorlab train`."""

from typing import Literal
from warnings import catch_warnings, simplefilter

from anchorlab.cli.options import shared
from anchorlab.cli.options.experiment import read_experiment
from anchorlab.cli.terminal.output import counted, print_json, print_metrics, print_problem, print_text
from anchorlab.errors import DivergedWarning
from anchorlab.progress import shown


def train(
    task: shared.TaskName,
    /,
    *,
    seeds: str = "0:3",
    task_fields: shared.TaskFields = None,
    model: shared.ModelFields = None,
    recipe: shared.RecipeFields = None,
    members: shared.MemberFields = None,
    store: shared.StoreFolder = None,
    execution: Literal["auto", "member", "mapped"] = "auto",
    json: shared.Flag = False,
    dry_run: shared.DryRun = False,
    where: shared.Place = shared.HERE,
) -> int:
    """Train one model per seed on a task and store the run; exit with 1 if a member diverged.

    Parameters
    ----------
    seeds
        Seeds of the members: `0:10` for 0 to 9, or a list such as `0,3,5`.
    model
        Setting of the model, such as `--model.layers 4` or `--model.kind recall`.
    recipe
        Setting of the training, such as `--recipe.learning-rate 1e-3` or `--recipe.data.size 600`.
    members
        Setting with one value per seed, such as `--members.learning-rate 1e-3,1e-4,1e-5`.
    execution
        `member`: one member after another; `mapped`: all at once; `auto`: the faster of the two.
    json
        Print the final metrics as JSON.
    """
    from anchorlab.cli.terminal.forecast import print_forecast
    from anchorlab.engine import run
    from anchorlab.engine.run import divergence
    from anchorlab.runs import Store
    from anchorlab.runs.metrics import last_metrics

    experiment = read_experiment(task, seeds, task_fields, model, recipe, members)
    on = where.backend()
    if dry_run:
        print_forecast([experiment], Store(store), where.workers, where.device, json, execution=execution)
        return 0
    with shown(not json) as report, catch_warnings():
        simplefilter("ignore", DivergedWarning)
        trained = run([experiment], Store(store), where.workers, where.device, execution, report, on=on)[0]
    last, diverged = last_metrics(trained.metrics), trained.diverged
    if json:
        place = {"run": trained.run.address, "path": str(trained.run.path)}
        seeds_lost = sorted({experiment.members.seeds[member] for member in diverged})
        print_json({**place, "diverged": seeds_lost, "last": last.to_dicts()})
    else:
        members_text = counted(len(experiment.members), "member")
        print_metrics(last, f"{experiment.cell.label}: {members_text} after {experiment.steps} steps")
        print_text(f"run {trained.run.address} in {trained.run.path}", wrapped=False)
    if problem := divergence([trained]):  # also for a run that was already in the store
        print_problem(problem)
    return 1 if diverged else 0
