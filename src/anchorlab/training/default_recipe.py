"""The recipe for a task when none is given."""

from anchorlab.tasks import Task
from anchorlab.training.recipe import AdamW, Evaluation, FixedSample, Recipe, Stream
from anchorlab.training.schedule import WarmupCosine


def default_recipe(task: Task, duration: int = 2000) -> Recipe:
    """Return a recipe of `duration` steps with which small models learn the task.

    Trains on a fixed sample if the task separates its splits, else on a stream.
    """
    return Recipe(
        data=FixedSample(size=1000) if task.separated else Stream(),
        optimiser=AdamW(learning_rate=1e-3),
        schedule=WarmupCosine(warmup=min(100, duration // 10), horizon=duration, end=0.1),
        batch=50 if task.separated else 64,
        duration=duration,
        clip=1.0,
        evaluation=Evaluation(every=max(1, duration // 20)),
    )
