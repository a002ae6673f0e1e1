"""What the anchor-function studies share: training settings, the paper's recipe, and a second control task."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from anchorlab.models import ModelSpec
from anchorlab.studies.seeds import fresh
from anchorlab.tasks import AnchorFunction, Task, task
from anchorlab.tasks.anchor.rule import Rule
from anchorlab.training import AdamW, Evaluation, Experiment, FixedSample, Members, Recipe, Times, WarmupCosine

ITEMS = range(20, 101)
"""The items of the paper's vocabulary: what keys are drawn from."""

BATCH_OF_TEXT = {"decoder": 100, "lstm": 10, "fnn": 10}
"""The batch sizes that appendix A of the paper gives for all tasks, by the kind of model."""

BATCH_NOTE = (
    "Batches of 50, as in the authors' code and logs of the identity task; appendix A says 100. The paper gives no "
    "weight decay; PyTorch's is used."
)
"""The note on batches and weight decay in the profiles with batches of 50."""

BATCH_NOTE_TEXT = "Batches of 100, as appendix A says. The paper gives no weight decay; PyTorch's is used."
"""The note on batches and weight decay in the profiles with the batches of appendix A."""

SomeSetting = TypeVar("SomeSetting", bound="Setting")  # the tests' run-time check cannot read typing.Self


@dataclass(frozen=True)
class Setting:
    """The training of a profile: a model under a recipe, with a number of seeds."""

    model: ModelSpec
    recipe: Recipe
    seeds: int

    def experiment(self, task: Task, label: str) -> Experiment:
        """Return the experiment that trains this setting on a task."""
        return Experiment(task, self.model, self.recipe, Members(seeds=fresh(self.seeds)), label)

    @property
    def size(self) -> int:
        """The number of training sequences."""
        return self.recipe.data.size  # type: ignore[union-attr]

    def on(self: SomeSetting, size: int) -> SomeSetting:
        """Return the setting with `size` training sequences."""
        return replace(self, recipe=self.recipe.replace(data=self.recipe.data.replace(size=size)))

    def shortened(self: SomeSetting, steps: int, seeds: int = 2, size: int | None = None) -> SomeSetting:
        """Return the setting with few steps and seeds, and on `size` sequences if given; for smoke profiles."""
        return replace(self, recipe=shortened(self.recipe, steps, size), seeds=seeds)


def only(label: str, name: str, run: str) -> Callable[[Setting], dict[str, Experiment]]:
    """Return a function from a setting to `{label: experiment}` with one experiment, `run`, on the task `name`."""
    return lambda setting: {label: setting.experiment(task(name), run)}


def paper_recipe(size: int, epochs: int = 4000, batch: int = 50, every: int = 100, whole: int = 4000) -> Recipe:
    """Return the paper's recipe: AdamW, learning rate 2e-5 to 2e-4 over 400 epochs, cosine back by 4000, clip 1.

    The schedule does not depend on when a run stops; `whole` epochs in place of 4000 keep its shape, with the first
    tenth as warm-up. The weight decay is PyTorch's 0.01; the paper gives none.
    Source: anchor function paper, appendix A; the clip and the batch of 50 from its authors' code. The batches of
        appendix A are in `BATCH_OF_TEXT`.
    """
    return Recipe(
        data=FixedSample(size=size),
        optimiser=AdamW(learning_rate=2e-4),
        schedule=WarmupCosine(warmup=whole // 10, horizon=whole, start=0.1, end=0.1),
        batch=batch,
        unit="epochs",
        duration=epochs,
        clip=1.0,
        evaluation=Evaluation(every=every),
    )


def shortened(recipe: Recipe, steps: int, size: int | None = None) -> Recipe:
    """Return a quick recipe cut to `steps` steps, with the same number of evaluations and checkpoints if possible.

    `size` is the number of training sequences, by default the recipe's. Evaluations measure 100 sequences per split.
    """

    def part(times: Times) -> int | None:
        every = times.along(recipe.duration).every
        return max(1, steps * every // recipe.duration) if isinstance(every, int) else None

    return recipe.replace(
        data=recipe.data if size is None else FixedSample(size=size),
        schedule=recipe.schedule.replace(warmup=max(1, steps // 10), horizon=max(2, steps)),
        duration=steps,
        evaluation=recipe.evaluation.replace(every=part(recipe.evaluation), size=100),
        checkpoints=recipe.checkpoints.replace(every=part(recipe.checkpoints)),
    )


def repeated(values: Iterable[float], times: int) -> tuple[float, ...]:
    """Repeat each value `times` times in a row."""
    return tuple(value for value in values for _ in range(times))


def at_every_gamma(gammas: Sequence[float], seeds: int) -> Members:
    """Return a member for each initialisation rate γ and seed; a seed's weights at two γ differ only in scale."""
    return Members(seeds=fresh(seeds) * len(gammas), gamma={"all": repeated(gammas, seeds)})


def mirrored(experiment: Experiment) -> Task:
    """Return an experiment's anchor function with every pattern reversed, as a second control.

    `A x -> A(x)`, the token after the anchor, becomes `x A -> A(x)`, the token before it: what follows the anchor no
    longer matters.
    """
    own = experiment.task
    assert isinstance(own, AnchorFunction)
    rules = {
        name: Rule.parse(f"{' '.join(reversed(rule.pattern.text.split()))} -> {rule.answer.text}")
        for name, rule in own.rules.items()
    }
    return own.replace(name=f"{own.name}-mirrored", rules=rules)
