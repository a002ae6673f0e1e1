"""Estimate what an experiment costs before it runs: memory, operations and time."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from anchorlab.errors import SpecError
from anchorlab.models import ModelSpec
from anchorlab.models.model import predict
from anchorlab.tasks import Task
from anchorlab.training.ensemble import build
from anchorlab.training.experiment import Experiment
from anchorlab.training.feed import STREAM_DRAW
from anchorlab.training.optimisers import slots

LEAST_MAPPED = 8
"""The smallest number of members for which mapping them pays on a CPU."""

_MOST_MAPPED_WORK = 2e7  # operations of one member's step; above, products take longer than the calls to them
_SECONDS_PER_STEP = 2e-3  # overhead of one member's step for calling operations, however small the model
_OPERATIONS_PER_SECOND = 1.5e11  # of one CPU core, in float32 products


def work_per_step(experiment: Experiment) -> int:
    """Estimate the floating-point operations of one member's training step.

    Counts only matrix products: three times the operations of the forward pass, at least one per sequence. Use it to
    compare experiments and to measure progress.
    """
    return 3 * experiment.recipe.batch * _work_per_sequence(experiment.model, experiment.task)


def estimated_seconds(experiment: Experiment) -> float:
    """Estimate the seconds that one CPU core needs to train all members, within a factor of about two."""
    if not experiment.trained:
        return 0.0
    return experiment.member_steps * (_SECONDS_PER_STEP + work_per_step(experiment) / _OPERATIONS_PER_SECOND)


@lru_cache(maxsize=1024)
def _work_per_sequence(model: ModelSpec, task: Task) -> int:
    """Return the floating-point operations of one sequence's forward pass."""
    batch = task.for_training(task.sample("train", 1, seed=0))
    module = build(model, task.shape)
    counter = _Operations()
    with torch.no_grad(), counter:
        predict(module, batch.inputs, batch.positions)
    return max(1, counter.total)


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Count the floating-point operations of matrix products, by torch's formulas.

    Torch's own `FlopCounterMode` counts the same and imports its compiler, which takes longer than a small training.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else the first operation imports the compiler

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if func.overloadpacket in flop_registry:
            self.total += int(flop_registry[func.overloadpacket](*args, **(kwargs or {}), out_val=out))
        return out


def mapping_pays(experiment: Experiment) -> bool:
    """Return whether a CPU trains the members faster all at once (mapped) than one by one."""
    return len(experiment.members) >= LEAST_MAPPED and is_tiny(experiment)


def is_tiny(experiment: Experiment) -> bool:
    """Return whether the overhead of calling operations dominates a training step; mapped members share it."""
    return experiment.trained and work_per_step(experiment) <= _MOST_MAPPED_WORK


def memory_per_member(experiment: Experiment) -> int:
    """Estimate the bytes that one member needs: weights, gradients, optimiser state, sequences and activations.

    The estimate of the activations is an upper bound.
    """
    weights = [*experiment.template.parameters(), *experiment.template.buffers()]
    widest = max((value.shape[-1] for value in weights if value.ndim), default=1)
    activations = experiment.recipe.batch * experiment.task.shape.length * widest * len(weights)
    return _bytes_per_number(experiment) * activations + sum(_held(experiment).values())


def check_memory(experiment: Experiment, available: int) -> None:
    """Raise `SpecError` if one member's weights or sequences alone are larger than the available bytes."""
    for field, needed in _held(experiment).items():
        if needed > available:
            problem = f"takes {needed / 1e9:,.2f} GB for one member, and there are {available / 1e9:,.2f} GB"
            raise SpecError(field, problem, "make it smaller")


def _held(experiment: Experiment) -> dict[str, int]:
    """Return the bytes that one member holds all along, by the field that decides on them."""
    task, recipe, number = experiment.task, experiment.recipe, _bytes_per_number(experiment)
    trained = parameter_count(experiment) * (1 + len(slots(recipe.optimiser)))
    weights = sum(value.numel() for value in (*experiment.template.parameters(), *experiment.template.buffers()))
    if recipe.data.kind == "sample":
        field, drawn = "recipe.data.size", max(experiment.members.data_size or (recipe.data.size,))
    else:
        field, drawn = "recipe.batch", max(STREAM_DRAW, recipe.batch)
    sequence = _bytes_per_sequence(task, number)
    evaluated = len(task.splits) * recipe.evaluation.size
    return {
        "model": number * (weights + trained),
        field: drawn * sequence,
        "recipe.evaluation.size": evaluated * sequence,
    }


def checkpoint_bytes(experiment: Experiment) -> int:
    """Return the bytes of all checkpoints of a run: the weights of all members at each of the recipe's times."""
    if not experiment.trained:
        return 0
    weights = [*experiment.template.parameters(), *experiment.template.buffers()]
    one = _bytes(weights, _bytes_per_number(experiment))
    return one * len(experiment.members) * len(experiment.steps_at(experiment.recipe.checkpoints))


def parameter_count(experiment: Experiment) -> int:
    """Return the number of trainable parameters of one member."""
    return sum(value.numel() for value in experiment.template.parameters() if value.requires_grad)


def _bytes_per_sequence(task: Task, number: int) -> int:
    """Return the bytes of one training sequence in a feed, with `number` bytes per floating-point number."""
    batch = task.for_training(task.sample("train", 1, seed=0))
    own = [batch.inputs, batch.targets, batch.weights, batch.positions if batch.positions.ndim > 1 else None]
    place_in_the_order = 8
    return place_in_the_order + _bytes((value for value in own if value is not None), number)


def _bytes_per_number(experiment: Experiment) -> int:
    """Return the bytes of a floating-point number in the recipe's precision."""
    return 8 if experiment.recipe.precision == "float64" else 4


def _bytes(values: Iterable[Tensor], number: int) -> int:
    """Return the bytes of tensors, with `number` bytes per floating-point number."""
    return sum(value.numel() * (number if value.is_floating_point() else value.element_size()) for value in values)
