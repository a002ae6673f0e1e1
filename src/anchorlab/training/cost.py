"""Estimate what an experiment costs before it runs: memory, operations and time."""

from collections.abc import Iterable

from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.tasks import Task
from anchorlab.training.evaluation import ROWS, first_changed_block
from anchorlab.training.experiment import Experiment
from anchorlab.training.feed import STREAM_DRAW
from anchorlab.training.operations import Operations, forward_operations, forward_products
from anchorlab.training.optimisers import slots

LEAST_MAPPED = 8
"""The smallest number of members for which mapping them pays on a CPU."""

LEAST_ROW = 6000
"""The smallest number of parameters for which updating mapped members one by one pays on a CPU."""

MOST_TOGETHER = 64
"""The largest number of members in one ensemble of joined experiments; a larger one would save little more."""

SECONDS_PER_CALL = 2e-5
"""What each operation of a forward pass adds to a step, forward and backward, however little it computes."""

PRODUCTS_PER_SECOND = 2e11
"""Floating-point operations of float32 products, on one thread."""

BYTES_PER_SECOND = 2e10
"""Bytes that other operations, and the optimiser, read and write on one thread."""

_MOST_MAPPED_WORK = 2e7  # operations of one member's step; above this number, products take longer than calls
_SECONDS_PER_STEP = 1e-4  # fixed part of a member's step, however few its operations
_MAPPED_STEP = 1e-3  # fixed part of a mapped step of all members, in seconds
_MAPPED_CALL = 3.0  # time of a mapped call for all members, relative to a call for one
_BACKWARD = 2.0  # the backward pass computes twice what the forward pass does


def work_per_step(experiment: Experiment) -> int:
    """Estimate the floating-point operations of one member's training step.

    Counts only matrix products: three times the operations of the forward pass, at least one per sequence. Use it to
    compare experiments and to measure progress.
    """
    return 3 * experiment.recipe.batch * forward_products(experiment.model, experiment.task)


def estimated_seconds(experiment: Experiment) -> float:
    """Estimate the seconds that one thread needs to train all members: all steps, and all evaluations.

    The time of a step or an evaluation is the sum of the times for its calls, for its products, and for the bytes that
    it moves, at the speeds `SECONDS_PER_CALL`, `PRODUCTS_PER_SECOND` and `BYTES_PER_SECOND`. These were measured on one
    core (AMD EPYC with AVX-512, torch 2.13.0) in 19 trainings in the papers' settings (`benchmarks/costs.py`), where
    the estimates are 0.76 to 1.36 times the measured times. Cores that reach 100 GFLOP/s took 1.5 to 3.5 times as long.
    Drawing sequences, and keeping checkpoints and states, take a few percent at most, and are not counted.
    """
    if not experiment.trained:
        return 0.0
    evaluations = len(set(experiment.steps_at(experiment.recipe.evaluation)))
    each = experiment.steps * _seconds_of_step(experiment) + evaluations * _seconds_of_evaluation(experiment)
    return len(experiment.members) * each


def _seconds_of_step(experiment: Experiment) -> float:
    """Estimate the seconds of one member's step: forward, backward, and the optimiser."""
    recipe = experiment.recipe
    forward = forward_operations(experiment.model, experiment.task, recipe.batch)
    read_and_written = 3 + 2 * len(slots(recipe.optimiser))  # read: weight, gradient, slots; written: weight, slots
    optimiser = _bytes_per_number(experiment) * parameter_count(experiment) * read_and_written
    begin = _MAPPED_STEP / _at_once(experiment) if mapping_pays(experiment) else _SECONDS_PER_STEP
    return begin + (1 + _BACKWARD) * _seconds(forward, experiment) + optimiser / BYTES_PER_SECOND


def _seconds_of_evaluation(experiment: Experiment) -> float:
    """Estimate the seconds to evaluate one member on all splits, with unedited weights and under all edits."""
    evaluation, template = experiment.recipe.evaluation, experiment.template
    known = [name for name, _ in (*template.named_parameters(), *template.named_buffers())]
    first = [0, *(first_changed_block(template, known, edits) for edits in evaluation.edits.values())]
    rows = min(ROWS, evaluation.size)
    # unedited weights take a whole pass; an edit repeats only the blocks from the first that it changes
    passes = [forward_operations(experiment.model, experiment.task, rows, False, block) for block in first]
    return len(experiment.splits) * evaluation.size / rows * sum(_seconds(one, experiment) for one in passes)


def _at_once(experiment: Experiment) -> int:
    return min(len(experiment.members), MOST_TOGETHER)


def _seconds(operations: Operations, experiment: Experiment) -> float:
    """Estimate the seconds that operations take for one member."""
    wide = _bytes_per_number(experiment) / 4
    call = SECONDS_PER_CALL / (1 + _BACKWARD)
    if mapping_pays(experiment):
        call *= _MAPPED_CALL / _at_once(experiment)
    numbers = operations.products / PRODUCTS_PER_SECOND + operations.bytes / BYTES_PER_SECOND
    return operations.calls * call + wide * numbers


def mapping_pays(experiment: Experiment) -> bool:
    """Return whether a CPU trains the members faster all at once (mapped) than one by one."""
    return len(experiment.members) >= LEAST_MAPPED and is_tiny(experiment)


def is_tiny(experiment: Experiment) -> bool:
    """Return whether a training step mostly takes the overhead of calling operations, which mapped members share."""
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
    """Return the bytes that one member holds throughout training, by the field that determines them."""
    task, recipe, number = experiment.task, experiment.recipe, _bytes_per_number(experiment)
    if recipe.data.kind == "sample":
        field, drawn = "recipe.data.size", max(experiment.members.data_size or (recipe.data.size,))
    else:
        field, drawn = "recipe.batch", max(STREAM_DRAW, recipe.batch)
    sequence = _bytes_per_sequence(task, number)
    return {
        "model": state_bytes(experiment) + number * parameter_count(experiment),  # the second term: gradients
        field: drawn * sequence,
        "recipe.evaluation.size": len(task.splits) * recipe.evaluation.size * sequence,
    }


def state_bytes(experiment: Experiment) -> int:
    """Return the bytes of one member's part of a kept state: its weights, and the state of its optimiser."""
    weights = sum(value.numel() for value in (*experiment.template.parameters(), *experiment.template.buffers()))
    kept = parameter_count(experiment) * len(slots(experiment.recipe.optimiser))
    return _bytes_per_number(experiment) * (weights + kept)


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
    return 8 if experiment.recipe.precision == "float64" else 4


def _bytes(values: Iterable[Tensor], number: int) -> int:
    """Return the bytes of tensors, with `number` bytes per floating-point number."""
    return sum(value.numel() * (number if value.is_floating_point() else value.element_size()) for value in values)
