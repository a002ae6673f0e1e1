"""Scores of the ideal predictor, which knows the task's distribution: no model has a lower expected loss."""

import torch

from anchorlab.tasks import Task


def ideal_scores(task: Task, split: str, n: int = 4096, seed: int = 0) -> dict[str, float]:
    """Return the loss and metrics of a task's exact predictor (`task.ideal`) on `n` fresh sequences of a split.

    The predictor knows the training distribution, so it is wrong on a split with a different one. Metrics of the most
    probable token are left out, since they are meaningless when the likeliest tokens tie.

    For a task of vectors, the predictor returns the mean of the target, which has the least expected squared error.

    Errors: `SpecError` for a task without an exact predictor, or an unknown split.
    """
    batch = task.sample(split, n, seed)
    outputs = task.ideal(batch.inputs)
    if task.loss == "cross_entropy":
        outputs = outputs.clamp(min=torch.finfo(outputs.dtype).tiny).log()  # finite: a zero contributes 0, not NaN
    measured = {"loss": task.losses(outputs, batch.targets), **task.metrics(outputs, batch)}
    weights = torch.ones_like(measured["loss"]) if batch.weights is None else batch.weights
    scored = weights > 0
    means = {name: float((value * weights)[scored].sum() / weights.sum()) for name, value in measured.items()}
    return {name: value for name, value in means.items() if name not in ("accuracy", "predicts_noise")}
