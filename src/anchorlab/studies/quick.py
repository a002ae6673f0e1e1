"""Small models and recipes that learn a task in minutes on two cores."""

from anchorlab.errors import SpecError
from anchorlab.models import DecoderSpec
from anchorlab.training import AdamW, Evaluation, FixedSample, Recipe, Times, WarmupCosine


def quick_model(layers: int = 2, heads: int = 1, width: int = 64) -> DecoderSpec:
    """Return a narrow transformer, by default two layers of one head with 0.1 M parameters."""
    return DecoderSpec(layers=layers, heads=heads, width=width, head_width=width // heads)


def quick_recipe(
    size: int,
    steps: int = 600,
    batch: int = 50,
    learning_rate: float = 6e-3,
    weight_decay: float = 0.3,
    evaluations: int = 8,
    checkpoints: int | None = None,
) -> Recipe:
    """Return a recipe for narrow models: few steps, a large learning rate and strong weight decay.

    `evaluations` and `checkpoints` are their numbers along training; `checkpoints=None` saves the last weights alone.

    Errors: `SpecError` if one of these numbers is below 1.
    """
    for name, count in (("evaluations", evaluations), ("checkpoints", checkpoints)):
        if count is not None and count < 1:
            raise SpecError(name, f"{count} is not a number along training", "give 1 or more")
    return Recipe(
        data=FixedSample(size=size),
        optimiser=AdamW(learning_rate=learning_rate, weight_decay=weight_decay),
        schedule=WarmupCosine(warmup=max(1, steps // 10), horizon=max(2, steps), start=0.1, end=0.01),
        batch=batch,
        duration=steps,
        clip=1.0,
        evaluation=Evaluation(every=max(1, steps // evaluations)),
        checkpoints=Times() if checkpoints is None else Times(every=max(1, steps // checkpoints)),
    )
