"""Check a task of your own against the contract of all tasks."""

import json

import torch

from anchorlab.errors import SpecError
from anchorlab.tasks.batch import Answer, Batch
from anchorlab.tasks.registry import parse_task
from anchorlab.tasks.task import Task

_TOLERANCE = 1e-4  # the largest difference of answers that are real numbers, which an oracle may compute another way


def check_task(one: Task, n: int = 300) -> None:
    """Check that a task keeps the contract, on `n` sequences of each split; call it in a test of your task.

        def test_my_task():
            al.tasks.check_task(al.task("mine"))

    The checks: shapes are right; equal seeds give equal sequences, different seeds different ones; `split_of` tells
    splits apart as promised; the oracle agrees with the sampler wherever it knows an answer; metrics and loss are
    finite; examples can be rendered; the task can be written and read back.

    Errors: `SpecError` that names the method at fault and says what it should do.
    """
    read_back = parse_task(json.loads(json.dumps(one.model_dump(mode="json"), sort_keys=True)))
    if read_back != one:
        raise SpecError("family", "another task comes back from the task's own fields", "keep all choices in fields")
    for side, split in enumerate(one.splits):
        batch = one.sample(split, n, seed=5)
        _check_shapes(one, batch, n)
        _check_seeds(one, batch, n)
        if not torch.equal(read_back.sample(split, n, seed=5).inputs, batch.inputs):
            problem = "draws other sequences after the task was written and read back"
            raise SpecError("sample", problem, "let no draw depend on the order of a mapping's keys")
        found = one.split_of(batch.inputs)
        if not ((found == side) if one.separated else (found >= 0)).all():
            wanted = f"{side}, its index in `splits`" if one.separated else "0 or more"
            raise SpecError("split_of", f"does not give {wanted}, for sequences of {split!r}", "compare with `sample`")
        _check_answers(batch, one.oracle(batch.inputs))
        outputs = torch.randn((*batch.positions.expand(n, -1).shape, one.shape.output_size))
        measured = {"loss": one.losses(outputs, batch.targets), **one.metrics(outputs, batch)}
        for name, value in measured.items():
            if value.shape != outputs.shape[:2] or not value.isfinite().all():
                problem = f"{name!r} is not one finite number for each sequence and scored position"
                raise SpecError("metrics", problem, f"return {list(outputs.shape[:2])}")
        if len(one.render(batch.inputs[:3])) != 3:
            raise SpecError("render", "does not give one example for each sequence", "return a list of `Example`")


def _check_shapes(one: Task, batch: Batch, n: int) -> None:
    shape = one.shape
    features = () if shape.inputs == "tokens" else (shape.input_size,)
    if batch.inputs.shape != (n, shape.length, *features):
        problem = f"inputs have the shape {list(batch.inputs.shape)}"
        raise SpecError("sample", problem, f"`shape` promises {[n, shape.length, *features]}")
    if shape.inputs == "tokens" and not ((batch.inputs >= 0) & (batch.inputs < shape.input_size)).all():
        raise SpecError("sample", f"tokens leave 0 to {shape.input_size - 1}", "mend the tokens or `shape`")
    outputs = () if batch.targets.dtype == torch.int64 else (shape.output_size,)
    wanted = (n, batch.positions.shape[-1], *outputs)
    if batch.targets.shape != wanted or batch.answers.shape != wanted:
        problem = f"targets have the shape {list(batch.targets.shape)}, answers {list(batch.answers.shape)}"
        raise SpecError("sample", problem, f"give {list(wanted)}, one for each scored position")
    if not outputs and not ((batch.targets >= 0) & (batch.targets < shape.output_size)).all():
        raise SpecError("sample", f"targets leave 0 to {shape.output_size - 1}", "mend the targets or `shape`")


def _check_seeds(one: Task, batch: Batch, n: int) -> None:
    if not torch.equal(one.sample(batch.split, n, seed=5).inputs, batch.inputs):
        raise SpecError("sample", "a seed gives other sequences the second time", "draw from `generator(seed, split)`")
    if torch.equal(one.sample(batch.split, n, seed=6).inputs, batch.inputs):
        raise SpecError("sample", "two seeds give the same sequences", "draw from `generator(seed, split)`")


def _check_answers(batch: Batch, found: Answer) -> None:
    if found.answers.shape != batch.answers.shape or found.known.shape != batch.answers.shape[:2]:
        problem = f"answers have the shape {list(found.answers.shape)}, known {list(found.known.shape)}"
        raise SpecError("oracle", problem, f"give {list(batch.answers.shape)} and {list(batch.answers.shape[:2])}")
    counted = found.known if batch.weights is None else found.known & (batch.weights > 0)
    own, right = found.answers[counted], batch.answers[counted]
    same = torch.allclose(own, right, rtol=0, atol=_TOLERANCE) if right.is_floating_point() else torch.equal(own, right)
    if not same:
        raise SpecError("oracle", f"disagrees with `sample` in {batch.split!r}", "compare both on one sequence")
