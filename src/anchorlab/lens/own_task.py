"""The task on which a model is measured: its own, or one that fits it."""

from anchorlab.errors import SpecError
from anchorlab.lens.look import AnyModel, look
from anchorlab.tasks.build import as_task
from anchorlab.tasks.task import Task
from anchorlab.training.ensemble import Ensemble
from anchorlab.training.trained_run import TrainedRun


def own_task(model: AnyModel, task: Task | str | None) -> Task:
    """Return the task that a run learned, or the given one."""
    given = None if task is None else as_task(task)
    if isinstance(model, TrainedRun):
        own = model.experiment.task
        if given is None or given == own:
            return own
        learned, other = (one.name or type(one).__name__ for one in (own, given))
        problem = f"is {other}, and the run learned {learned}{' with other settings' * (other == learned)}"
        raise SpecError("task", problem, "leave it out, or give run.ensemble() to explain the model on another task")
    if given is None:
        raise SpecError("task", "is missing", "give the task that the model was trained on")
    return given


def check_fits(model: Ensemble, task: Task) -> None:
    """Raise `SpecError` if the model cannot read the task's sequences, or their numbers of outputs differ."""
    remedy = "give the task that the model was trained on"
    batch = task.sample(task.splits[-1], 1, seed=0)
    try:
        output = look(model, batch, positions=batch.positions)["output"]
    except SpecError as error:
        if error.field != "inputs":
            raise
        raise SpecError("task", f"has sequences that {error.problem}", remedy) from None
    if output.shape[-1] != task.shape.output_size:
        problem = f"has {task.shape.output_size} outputs, and the model {output.shape[-1]}"
        raise SpecError("task", problem, remedy)
