"""`check_task` names the method at fault."""

from typing import ClassVar, Literal

import pytest
import torch
from pydantic import Field

from anchorlab.errors import SpecError
from anchorlab.tasks import Answer, Batch, Task, TaskShape, check_task, generator
from anchorlab.tasks.registry import task_family


@task_family("test-copy")
class Copy(Task):
    """The first token."""

    family: Literal["test-copy"] = "test-copy"
    separated: ClassVar[bool] = False

    @property
    def shape(self):
        return TaskShape("tokens", 3, 7, 7)

    def sample(self, split, n, seed):
        self.check_draw(split, n, seed)
        inputs = torch.from_numpy(generator(seed, split).integers(0, 7, (n, 3)))
        answers = inputs[:, :1]
        return Batch(inputs, answers, answers, torch.tensor([2]), split)

    def oracle(self, inputs):
        return Answer(inputs[:, :1], torch.ones((len(inputs), 1), dtype=torch.bool))


def test_sample_oracle_and_shape_are_enough():
    check_task(Copy())
    shown = Copy().render(torch.tensor([[3, 0, 5]]))[0]
    assert (shown.text, shown.answer, shown.split) == ("3 0 5", "3", "train")


DRAW = Copy.sample


def sampled(change):
    def sample(self, split, n, seed):
        return change(DRAW(self, split, n, seed))

    return sample


def with_inputs(batch, inputs, **others):
    values = {"targets": batch.targets, "answers": batch.answers, **others}
    return Batch(inputs, **values, positions=batch.positions, split=batch.split)


@pytest.mark.parametrize(
    ("method", "other", "problem"),
    [
        ("oracle", lambda self, x: Answer(x[:, 1:2], torch.ones((len(x), 1), dtype=torch.bool)), "oracle: disagrees"),
        ("oracle", lambda self, x: Answer(x, x >= 0), "oracle: answers have the shape"),
        ("separated", True, "split_of: is missing, though the splits of Copy are separated"),
        ("sample", lambda self, split, n, seed: DRAW(self, split, n, 0), "two seeds give the same"),
        ("sample", lambda self, split, n, seed: DRAW(self, split, n, torch.seed()), "other sequences the second time"),
        ("sample", sampled(lambda one: with_inputs(one, one.inputs[:, :2])), r"\[300, 3\]"),
        ("sample", sampled(lambda one: with_inputs(one, one.inputs + 1)), "tokens leave 0 to 6"),
        ("sample", sampled(lambda one: with_inputs(one, one.inputs, targets=one.inputs)), "one for each scored"),
        ("sample", sampled(lambda one: with_inputs(one, one.inputs, targets=one.targets + 1)), "targets leave 0 to 6"),
        ("split_of", lambda self, x: torch.full((len(x),), -1), "split_of: does not give 0 or more"),
        ("metrics", lambda self, outputs, batch: {"x": outputs}, "'x' is not one finite number"),
        ("render", lambda self, x: [], "render: does not give one example"),
    ],
)
def test_the_method_at_fault_is_named(method, other, problem, monkeypatch):
    monkeypatch.setattr(Copy, method, other)
    with pytest.raises(SpecError, match=problem):
        check_task(Copy())


@task_family("test-weighed")
class Weighed(Copy):
    """The first token, drawn by weights."""

    family: Literal["test-weighed"] = "test-weighed"
    weights: dict[str, float] = Field(default_factory=lambda: {"5": 0.9, "2": 0.1})

    def sample(self, split, n, seed):
        tokens, shares = [int(token) for token in self.weights], list(self.weights.values())
        inputs = torch.from_numpy(generator(seed, split).choice(tokens, p=shares, size=(n, 3)))
        return Batch(inputs, inputs[:, :1], inputs[:, :1], torch.tensor([2]), split)


def test_draws_must_not_depend_on_the_order_of_keys():
    with pytest.raises(SpecError, match="sample: draws other sequences after the task was written and read back"):
        check_task(Weighed())
