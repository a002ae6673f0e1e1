"""What an experiment costs before it runs: the memory of a member, and the work of a step."""

from functools import lru_cache

import torch
from torch.utils.flop_counter import FlopCounterMode

from anchorlab.models import ModelSpec
from anchorlab.models.model import predict
from anchorlab.tasks import Task
from anchorlab.training.ensemble import build
from anchorlab.training.experiment import Experiment
from anchorlab.training.feed import STREAM_DRAW


def work_per_step(experiment: Experiment) -> int:
    """Floating-point operations of one member's training step: three times those of its products going forward.

    Only products are counted, and a model without any has one operation. Good for weighing experiments against each
    other: which takes longest, how much is left.
    """
    return 3 * experiment.recipe.batch * _work_per_sequence(experiment.model, experiment.task)


@lru_cache(maxsize=1024)
def _work_per_sequence(model: ModelSpec, task: Task) -> int:
    batch = task.sample("train", 1, seed=0)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        predict(build(model, task.shape), batch.inputs, batch.positions)
    return max(1, int(counter.get_total_flops()))


def memory_per_member(experiment: Experiment) -> int:
    """Bytes that one member needs: weights, gradients, optimiser state, sequences, an upper guess of activations."""
    task, recipe = experiment.task, experiment.recipe
    template = build(experiment.model, task.shape)
    weights = [*template.parameters(), *template.buffers()]
    number = 8 if recipe.precision == "float64" else 4
    slots = 2 if recipe.optimiser.kind != "sgd" else int(recipe.optimiser.momentum > 0)
    trainable = sum(value.numel() for value in template.parameters() if value.requires_grad)
    widest = max((value.shape[-1] for value in weights if value.ndim), default=1)
    activations = recipe.batch * task.shape.length * widest * len(weights)
    sequences = len(task.splits) * recipe.evaluation.size
    if recipe.data.kind == "sample":
        sequences += max(experiment.members.data_size or (recipe.data.size,))
    else:
        sequences += max(STREAM_DRAW, recipe.batch)
    numbers = sum(value.numel() for value in weights) + (1 + slots) * trainable + activations
    return number * numbers + sequences * _bytes_per_sequence(task, number)


def _bytes_per_sequence(task: Task, number: int) -> int:
    batch = task.sample("train", 1, seed=0)
    values = [batch.inputs, batch.targets, *([batch.weights] if batch.weights is not None else [])]
    if batch.positions.ndim > 1:
        values.append(batch.positions)
    place_in_the_order = 8
    return place_in_the_order + sum(
        value[0].numel() * (number if value.is_floating_point() else value.element_size()) for value in values
    )
