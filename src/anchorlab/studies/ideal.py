"""What the ideal predictor scores, which knows the task's law and misses nothing: no model has a lower loss."""

import torch

from anchorlab.tasks import Task
from anchorlab.tasks.metrics import loss_per_position


def ideal_scores(task: Task, split: str, n: int = 4096, seed: int = 0) -> dict[str, float]:
    """The loss and the metrics of a task's exact predictor (`task.ideal`), on `n` sequences of a split drawn afresh.

    The predictor knows the law of training: on a split with another law even it is wrong about that. Metrics of the
    most probable token are left out: where the likeliest tokens are equally likely, they say nothing.

    Errors: `SpecError` for a task without an exact predictor, or an unknown split.
    """
    batch = task.sample(split, n, seed)
    law = task.ideal(batch.inputs)
    logits = law.clamp(min=torch.finfo(law.dtype).tiny).log()  # finite, so that what has no chance adds nothing
    measured = {"loss": loss_per_position(task.loss, logits, batch.targets), **task.metrics(logits, batch)}
    weights = torch.ones_like(measured["loss"]) if batch.weights is None else batch.weights
    scored = weights > 0
    means = {name: float((value * weights)[scored].sum() / weights.sum()) for name, value in measured.items()}
    return {name: value for name, value in means.items() if name not in ("accuracy", "predicts_noise")}
