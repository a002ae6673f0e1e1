"""What the anchor-function studies have in common: the paper's own recipe, and one that small models learn from."""

from anchorlab.models import DecoderSpec
from anchorlab.training import AdamW, Evaluation, FixedSample, Recipe, Times, WarmupCosine


def paper_recipe(size: int, epochs: int = 4000, batch: int = 50, every: int = 100) -> Recipe:
    """The paper's recipe: 2e-5 to 2e-4 over 400 epochs, cosine back to 2e-5 at 4000, AdamW, clip 1, evaluated `every`.

    The schedule is the same however early a run stops. PyTorch's weight decay of 0.01; the paper gives none.
    Source: anchor function paper, appendix A; batch 50 and the clip from its code.
    """
    return Recipe(
        data=FixedSample(size=size),
        optimiser=AdamW(learning_rate=2e-4),
        schedule=WarmupCosine(warmup=400, horizon=4000, start=0.1, end=0.1),
        batch=batch,
        unit="epochs",
        duration=epochs,
        clip=1.0,
        evaluation=Evaluation(every=every),
    )


def quick_model(layers: int = 2, heads: int = 1, width: int = 64) -> DecoderSpec:
    """A narrow transformer: two layers of one head, 0.1 M parameters unless told otherwise."""
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
    """A recipe for narrow models: a number of steps, a large learning rate and much weight decay.

    `evaluations` says how often it is measured on the way, `checkpoints` how often the weights are kept (None: at the
    end alone).
    """
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
