"""Shared by the retrieval studies: chains, models and recipes, and values read from a run's setting."""

import math
from collections.abc import Iterable
from dataclasses import replace

from anchorlab import training
from anchorlab.models import VectorSpec
from anchorlab.studies.seeds import fresh
from anchorlab.tasks import MinimalRetrieval, task
from anchorlab.theory.information_flow import Flow, least_depth

RETRIEVED = 0.5
"""A symbol counts as retrieved once its partial loss is below this (section 7.2)."""

GUESSING = 0.75
"""The loss of a model that knows which symbols occur, but not which of four chains is asked for."""

OUR_CHOICES = (
    "Not given by the paper, and so our choice: rotary frequencies 10000^(-2i/K), initial scale 0.02, gradient "
    "clipping at 1, no warm-up, and a causal mask."
)
"""Part of the note of every profile in a setting of the paper."""

PASSES = 6400 * 256 / 2**18
"""How often the training of section 9.1 sees each of its 262 k sequences, by its steps and batch: 6.25 times.

The section calls these steps 800 epochs, which does not fit 262 k sequences.
"""


def orthogonal(features: int) -> tuple[float, ...]:
    """Return frequencies that make the position vectors of any `features` successive positions orthogonal.

    After twice that many positions the vectors repeat.
    """
    return tuple(math.pi / features * odd for odd in range(1, features, 2))


def nearly_orthogonal(features: int) -> tuple[float, ...]:
    """Return the frequencies of `orthogonal`, 3 % higher, so that vectors that would repeat differ a little."""
    return tuple(1.03 * frequency for frequency in orthogonal(features))


def quick(
    steps: int, layers: int, duration: int, seeds: int, checkpoints: int | None = None, label: str = ""
) -> training.Experiment:
    """Return the setting of quick profiles, with the implicit curriculum; `retrieval/plateau` shows which parts matter.

    Chains have `steps` steps, layers one head and no feed-forward part; `checkpoints` batches lie between two
    checkpoints, None for only the last.
    """
    features = 8
    recipe = training.Recipe(
        data=training.Stream(),
        optimiser=training.AdamW(learning_rate=3e-3, weight_decay=0.1),
        schedule=training.WarmupCosine(warmup=100, horizon=duration, end=0.05),
        batch=64,
        duration=duration,
        clip=1.0,
        evaluation=training.Evaluation(every=20, size=256, splits=("test",)),
        checkpoints=training.Times(every=checkpoints),
    )
    return training.Experiment(
        task("retrieval/minimal", steps=steps, features=features, frequencies=nearly_orthogonal(features)),
        VectorSpec(layers=layers, heads=1, width=64, feed_forward=False, initial_scale=0.15),
        recipe,
        training.Members(seeds=fresh(seeds)),
        label,
    )


def paper(steps: int, model: VectorSpec, recipe: training.Recipe, seeds: int, label: str = "") -> training.Experiment:
    """Return a setting of the paper, with the implicit curriculum: K = 4, and the rotary embedding's frequencies."""
    return training.Experiment(
        task("retrieval/minimal", steps=steps, features=4), model, recipe, training.Members(seeds=fresh(seeds)), label
    )


def paper_recipe(
    steps: int, batch: int, evaluation: training.Evaluation, size: int = 2**18, checkpoints: int | None = None
) -> training.Recipe:
    """Return the paper's recipe: a fixed sample, Adam at 1e-3 with a decoupled decay of 0.1.

    When and on how many sequences the losses are measured is our choice.

    Source: stacked attention heads, sections 7.1, 8.1 and 9.1.
    """
    return training.Recipe(
        data=training.FixedSample(size=size),
        optimiser=training.AdamW(learning_rate=1e-3, weight_decay=0.1),
        batch=batch,
        duration=steps,
        clip=1.0,
        evaluation=evaluation,
        checkpoints=training.Times(every=checkpoints),
    )


def on_fixed_sample(setting: training.Experiment, seeds: int, label: str = "") -> training.Experiment:
    """Return the setting with its first seeds on a fixed sample, seen as often as the paper's; measures both splits."""
    recipe, fewer = setting.recipe, range(min(seeds, len(setting.members)))
    sample = recipe.replace(
        data=training.FixedSample(size=round(setting.steps * recipe.batch / PASSES)),
        evaluation=recipe.evaluation.replace(size=1024, splits=("train", "test")),
        checkpoints=training.Times(),
    )
    return replace(setting.take(fewer), recipe=sample, label=label)


def section_7(steps: int) -> training.Experiment:
    """Return the paper's setting of section 7.1: eight layers of eight heads, width 128, with feed-forward layers."""
    evaluation = training.Evaluation(every=80, size=4096)  # on 1024, noise could bring guessing's 0.75 below 0.7
    return paper(steps, VectorSpec(), paper_recipe(10_000, 512, evaluation, size=2**20), seeds=8)


def smoke(steps: int, seeds: int = 2, label: str = "") -> training.Experiment:
    """Return a setting that is fast but learns nothing."""
    recipe = training.Recipe(
        data=training.Stream(),
        schedule=training.Constant(),
        batch=8,
        duration=6,
        evaluation=training.Evaluation(every=2, size=16, splits=("test",)),
        checkpoints=training.Times(every=3),
    )
    return paper(steps, VectorSpec(layers=2, heads=1, width=16, feed_forward=False), recipe, seeds, label)


def retrieval_of(run: training.TrainedRun) -> MinimalRetrieval:
    """Return a run's task."""
    chosen = run.experiment.task
    assert isinstance(chosen, MinimalRetrieval)
    return chosen


def spec_of(run: training.TrainedRun) -> VectorSpec:
    """Return the specification of a run's models."""
    spec = run.experiment.model
    assert isinstance(spec, VectorSpec)
    return spec


def least_layers_of(run: training.TrainedRun, steps: Iterable[int]) -> list[int]:
    """Return the fewest layers, with the mask and heads of a run's models, that carry information `steps` steps."""
    spec = spec_of(run)
    flow = Flow(causal=spec.mask, heads=1 if spec.heads == 1 else None)
    return [least_depth(one, flow) for one in steps]
