"""Measure how fast an experiment trains on this machine, from a few of its steps."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from anchorlab.models import fast_float32
from anchorlab.training.cost import MOST_TOGETHER, mapping_pays, work_per_step
from anchorlab.training.experiment import Experiment
from anchorlab.training.feed import StreamFeed
from anchorlab.training.trainer import ExecutionName, Session, check_device

MEASURED_MEMBERS = 2
"""The largest number of members measured on a CPU unless mapped: all members take the same time there."""

_WARM_UP = 2  # steps; the first ones allocate memory and choose kernels
_FEWEST = 3  # the least number of measured steps
_EVALUATED_WORK = 2e10  # operations of one member's measured evaluation of a split; larger ones are scaled up
_FEWEST_EVALUATED = 64  # sequences of each split


@dataclass(frozen=True)
class Pace:
    """The training time of one member, in seconds.

    Fields
        begin: drawing its initial weights and its sequences
        step: one optimiser step, including its share of drawing a stream's sequences
        evaluate: one evaluation
        steps: the number of measured steps
    """

    begin: float
    step: float
    evaluate: float
    steps: int

    def seconds(self, experiment: Experiment) -> float:
        """Return the seconds that one member of an experiment takes from beginning to end."""
        if not experiment.trained:
            return self.begin + self.evaluate
        evaluations = len(set(experiment.steps_at(experiment.recipe.evaluation)))
        return self.begin + experiment.steps * self.step + evaluations * self.evaluate


def pace_key(experiment: Experiment) -> str:
    """Return a key that is equal for experiments of equal pace: same shapes, any rates, data sizes and durations."""
    task, recipe = experiment.task, experiment.recipe
    batch = recipe.batch if recipe.data.kind == "stream" else min(recipe.batch, recipe.data.size)
    what = {
        "task": [task.family, *map(str, (task.shape, task.splits, task.loss))],
        "model": experiment.model.model_dump(mode="json"),
        "data": recipe.data.kind,
        "evaluation": recipe.evaluation.model_dump(mode="json", exclude={"every", "at"}),
        "others": [batch, recipe.precision, recipe.optimiser.kind, recipe.clip is None, str(recipe.loss)],
        "work": work_per_step(experiment),
        "mapped": min(len(experiment.members), MOST_TOGETHER) if mapping_pays(experiment) else 0,
    }
    return json.dumps(what, sort_keys=True)


def measure_pace(
    experiment: Experiment, device: str = "cpu", execution: ExecutionName = "auto", seconds: float = 0.5
) -> Pace:
    """Train a few steps, discard them, and return their pace. Writes nothing.

    On a CPU up to `MEASURED_MEMBERS` members are measured, or `MOST_TOGETHER` if they are mapped; on CUDA all members,
    since they train at once. The first steps, and if possible the first evaluation, are a warm-up and do not count.
    A long evaluation is measured on some of its sequences.

    Args:
        experiment: the experiment to measure; one with a `start` is measured on initial weights
        device: `cpu` or `cuda`
        execution: as for `fit`
        seconds: how long to measure; at least three steps are measured
    """
    found = check_device(device)
    mapped = execution == "mapped" or (execution == "auto" and mapping_pays(experiment))
    most = MOST_TOGETHER if mapped else MEASURED_MEMBERS
    count = len(experiment.members) if found.type == "cuda" else min(len(experiment.members), most)
    with fast_float32():
        began = time.perf_counter()
        some = experiment if count == len(experiment.members) else experiment.take(range(count))
        some, share = _with_shorter_evaluation(some)
        session = Session(some, found, execution)
        session.feed.at(0)  # a stream draws its first sequences here
        begin = _since(began, found)
        within = session.feed.steps_per_draw if isinstance(session.feed, StreamFeed) else experiment.steps

        def step(number: int) -> None:
            session.take_step(number % within, experiment.recipe.schedule.factor(0))

        steps, trained = 0, 0.0
        if experiment.trained:
            warm = min(_WARM_UP, max(1, experiment.steps - 1))
            for number in range(warm):
                step(number)
            steps, trained = _repeated(lambda number: step(warm + number), seconds, found)
        evaluation = 0.0
        for _ in range(2):
            began = time.perf_counter()
            session.evaluator.measure(session.ensemble, 0)
            evaluation = _since(began, found)
            if evaluation > seconds:
                break
    draw = 0.0
    if isinstance(session.feed, StreamFeed):
        began = time.perf_counter()
        session.feed.at(session.feed.steps_per_draw)
        draw = _since(began, found) / session.feed.steps_per_draw
    each = 0.0 if not steps else trained / steps + draw
    return Pace(begin / count, each / count, evaluation / share / count, steps)


def _with_shorter_evaluation(experiment: Experiment) -> tuple[Experiment, float]:
    """Return an experiment that evaluates only as many sequences as its pace needs, and their share of all."""
    recipe = experiment.recipe
    each = work_per_step(experiment) / (3 * recipe.batch)
    size = min(recipe.evaluation.size, max(_FEWEST_EVALUATED, int(_EVALUATED_WORK / each)))
    shorter = recipe.replace(evaluation=recipe.evaluation.replace(size=size))
    return replace(experiment, recipe=shorter), size / recipe.evaluation.size


def _repeated(act: Callable[[int], None], seconds: float, device: torch.device) -> tuple[int, float]:
    """Repeat an action for at least `seconds` and `_FEWEST` times; return the number of times and the seconds taken."""
    began, count = time.perf_counter(), 0
    while True:
        act(count)
        count += 1
        if (passed := _since(began, device)) >= seconds and count >= _FEWEST:
            return count, passed


def _since(began: float, device: torch.device) -> float:
    """Return the seconds since `began`, after waiting for all work on the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - began
