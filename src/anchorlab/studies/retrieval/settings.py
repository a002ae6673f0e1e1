"""Settings that the retrieval studies share, and what all of them read of a run."""

import math

from anchorlab.models import VectorSpec
from anchorlab.tasks import MinimalRetrieval, task
from anchorlab.training import (
    AdamW,
    Constant,
    Evaluation,
    FixedSample,
    Recipe,
    Stream,
    Times,
    TrainedRun,
    WarmupCosine,
)

RETRIEVED = 0.5
"""A symbol counts as retrieved once its partial loss is below this (section 7.2)."""

QUICK_FEATURES = 8
"""K of quick profiles."""

QUICK_MODEL = VectorSpec(layers=4, heads=1, width=64, feed_forward=False, initial_scale=0.15)
"""The model of quick profiles; `retrieval/plateau` tells what matters in it."""

SMOKE_MODEL = VectorSpec(layers=2, heads=1, width=16, feed_forward=False)
"""A model that is fast and learns nothing."""


def orthogonal(features: int) -> tuple[float, ...]:
    """Frequencies under which the position vectors of so many neighbours are orthogonal to each other.

    After twice as many the vectors repeat.
    """
    return tuple(math.pi / features * odd for odd in range(1, features, 2))


def nearly_orthogonal(features: int) -> tuple[float, ...]:
    """Those of `orthogonal`, 3 % faster: what repeats there differs a little, so that a model can tell it apart."""
    return tuple(1.03 * frequency for frequency in orthogonal(features))


def quick_task(steps: int) -> MinimalRetrieval:
    """Chains of quick profiles, with the implicit curriculum."""
    frequencies = nearly_orthogonal(QUICK_FEATURES)
    made = task("retrieval/minimal", steps=steps, features=QUICK_FEATURES, frequencies=frequencies)
    assert isinstance(made, MinimalRetrieval)
    return made


def paper_task(steps: int) -> MinimalRetrieval:
    """The paper's chains, with the implicit curriculum: K = 4, and the rotary embedding's frequencies."""
    made = task("retrieval/minimal", steps=steps, features=4)
    assert isinstance(made, MinimalRetrieval)
    return made


def quick_recipe(steps: int, checkpoints: int | None = None) -> Recipe:
    """The recipe of quick profiles; `retrieval/plateau` tells what matters in it."""
    return Recipe(
        data=Stream(),
        optimiser=AdamW(learning_rate=3e-3, weight_decay=0.1),
        schedule=WarmupCosine(warmup=100, horizon=steps, end=0.05),
        batch=64,
        duration=steps,
        clip=1.0,
        evaluation=Evaluation(every=20, size=256, splits=("test",)),
        checkpoints=Times(every=checkpoints),
    )


def paper_recipe(steps: int, batch: int, size: int = 2**18, checkpoints: int | None = None) -> Recipe:
    """The paper's recipe: a fixed sample, Adam at 1e-3 with a decoupled decay of 0.1 (sections 7.1, 8.1 and 9.1)."""
    return Recipe(
        data=FixedSample(size=size),
        optimiser=AdamW(learning_rate=1e-3, weight_decay=0.1),
        batch=batch,
        duration=steps,
        clip=1.0,
        evaluation=Evaluation(every=80, size=4096),
        checkpoints=Times(every=checkpoints),
    )


def smoke_recipe() -> Recipe:
    """Far too short to learn anything: it only exercises the code."""
    return Recipe(
        data=Stream(),
        schedule=Constant(),
        batch=8,
        duration=6,
        evaluation=Evaluation(every=2, size=16, splits=("test",)),
        checkpoints=Times(every=3),
    )


def retrieval_of(run: TrainedRun) -> MinimalRetrieval:
    """A run's task."""
    chosen = run.experiment.task
    assert isinstance(chosen, MinimalRetrieval)
    return chosen


def layers_of(run: TrainedRun) -> int:
    """How many layers a run's models have."""
    spec = run.experiment.model
    assert isinstance(spec, VectorSpec)
    return spec.layers
