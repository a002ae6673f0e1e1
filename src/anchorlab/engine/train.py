"""One call from a task to a trained ensemble."""

from collections.abc import Callable, Iterable

from anchorlab.engine.run import Status, run
from anchorlab.errors import SpecError
from anchorlab.models import ModelSpec, default_model
from anchorlab.runs import Store
from anchorlab.tasks import Task
from anchorlab.tasks import task as make_task
from anchorlab.training import Experiment, Members, Recipe, TrainedRun
from anchorlab.training.default_recipe import default_recipe
from anchorlab.training.trainer import ExecutionName


def train(
    task: Task | str,
    model: ModelSpec | None = None,
    recipe: Recipe | None = None,
    seeds: Iterable[int] | Members = (0,),
    store: Store | None = None,
    workers: int | None = None,
    device: str = "cpu",
    execution: ExecutionName = "auto",
    report: Callable[[Status], None] | None = None,
    start: TrainedRun | None = None,
) -> TrainedRun:
    """Trains one member per seed and keeps the run; what the store already holds is read, not trained again.

    Without a model or recipe, ones that suit the task are used. With a `start`, the members of that run are trained
    further, with its model unless told otherwise. `workers` processes share the members on a CPU (None:
    one for every core); with more than one, a script needs the usual `if __name__ == "__main__":`.

    Errors: `SpecError` that names the field; `StoreError` for a damaged store.

    >>> run = train("anchor/identity", seeds=range(10))  # doctest: +SKIP
    >>> run.metrics.filter(split="test", metric="accuracy")  # doctest: +SKIP
    """
    if model is not None and not isinstance(model, ModelSpec):
        raise SpecError("model", f"{type(model).__name__} is no model spec", "register a module by al.register_module")
    if recipe is not None and not isinstance(recipe, Recipe):
        raise SpecError("recipe", f"{type(recipe).__name__} is no recipe", "write al.Recipe(...)")
    chosen: Task = make_task(task) if isinstance(task, str) else task
    members = seeds if isinstance(seeds, Members) else Members.parse({"seeds": tuple(seeds)}, "members")
    before = None if start is None else start.experiment
    model = model or (default_model(chosen.shape) if before is None else before.model)
    experiment = Experiment(chosen, model, recipe or default_recipe(chosen), members, start=before)
    return run([experiment], store, workers, device, execution, report)[0]
