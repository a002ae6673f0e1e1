"""Grokking: a network generalises long after it has memorised.

Trained on a part of all pairs of numbers, a transformer first memorises the sums modulo a prime and computes them for
unseen pairs only later. Weight decay brings this forward, and less data delays it.

Source: Power et al., Grokking: generalization beyond overfitting on small algorithmic datasets (2022), Figures 1 and 2.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from anchorlab.findings import LineFigure, Reference, at_least, at_most
from anchorlab.models import DecoderSpec
from anchorlab.papers.classics.grokking.progress import frequencies, losses, progress
from anchorlab.studies import SEARCHED, Profile, Reading, Study, claim, measures_in, precondition, reading
from anchorlab.studies.draws import seed_by_seed
from anchorlab.studies.kit import MEAN_AND_RANGE, split_curves, training_curves
from anchorlab.studies.readings import Quantity, along, at_end, crossing
from anchorlab.tasks.classics.modular_arithmetic import ModularArithmetic, Operation
from anchorlab.training import AdamW, Evaluation, Experiment, FixedSample, Members, Recipe, WarmupCosine

LEARNED = 0.95  # a split is learned at the step where its accuracy first reaches this
SEEN = (*SEARCHED, *range(1000, 1004))  # a first setting was changed after a look at four published seeds
FIRST = 1100  # the first seed of the members, and the seed that draws the training pairs
DECAY, PLAIN, MORE = "weight decay", "no weight decay", "more data"


@dataclass(frozen=True)
class Setting:
    """What a profile trains."""

    model: DecoderSpec
    # the modulus, and what is computed
    prime: int
    operation: Operation
    # the share of all pairs in training, and the share in the experiment with more data
    fraction: float
    more: float
    decay: float
    recipe: Recipe  # how it learns, apart from the data and the weight decay
    seeds: int  # the number of members

    def experiment(self, label: str, fraction: float, decay: float) -> Experiment:
        """Return the experiment that trains on this share of all pairs with this weight decay."""
        task = ModularArithmetic(prime=self.prime, operation=self.operation, fraction=fraction, pairs_seed=FIRST)
        optimiser = self.recipe.optimiser.replace(weight_decay=decay)
        recipe = self.recipe.replace(data=FixedSample(size=task.training_pairs), optimiser=optimiser)
        return Experiment(task, self.model, recipe, Members(seeds=range(FIRST, FIRST + self.seeds)), label)


def experiments(setting: Setting) -> dict[str, Experiment]:
    """Return the experiments with weight decay, without it, and with weight decay on more data."""
    return {
        DECAY: setting.experiment(DECAY, setting.fraction, setting.decay),
        PLAIN: setting.experiment(PLAIN, setting.fraction, 0.0),
        MORE: setting.experiment(MORE, setting.more, setting.decay),
    }


class Seen(Reading):
    """Accuracies along training, and the step at which each member learns each split, infinite if it never does."""

    train, test = along("train", "accuracy"), along("test", "accuracy")
    fitted = crossing("train", "accuracy", LEARNED, heading="memorised")
    generalised = crossing("test", "accuracy", LEARNED, heading="generalises")
    memorised = at_end("train", "accuracy")
    final = at_end("test", "accuracy", heading="test at the end")
    progress = Quantity(progress)

    @reading
    def early(self) -> Float[Tensor, "member"]:
        """The test accuracy with weight decay at the first evaluation with the training split learned, NaN if never."""
        train, test = self.train[DECAY], self.test[DECAY]
        first = (train >= LEARNED).double().argmax(dim=1, keepdim=True)  # 0 if there is none
        return torch.where((train >= LEARNED).any(dim=1), test.gather(1, first).squeeze(1), torch.nan)


def _ratio(steps: Float[Tensor, "seed"], others: Float[Tensor, "seed"]) -> Float[Tensor, "seed"] | None:
    return steps / others if bool((steps + others).isfinite().all()) else None


@claim("Fig 1 left", "about 1000 times as many steps", at_least(3))
def long_after(seen: Seen) -> Float[Tensor, "seed"] | None:
    """Unseen pairs are answered long after the training pairs are memorised.

    Steps until the test accuracy reaches {LEARNED}, over steps until the training accuracy does, with decay.
    """
    return _ratio(seen.generalised[DECAY], seen.fitted[DECAY])


@claim("Fig 1 left", "near chance", at_most(0.3))
def memorised_first(seen: Seen) -> Float[Tensor, "seed"] | None:
    """When the training pairs are memorised, most unseen pairs are answered wrongly.

    Test accuracy at the first evaluation with a training accuracy of at least {LEARNED}, with weight decay.
    """
    return None if bool(seen.early.isnan().any()) else seen.early


@claim("Fig 2 left", "weight decay helps most of all that was tried", at_least(0.8))
def decay_sooner(seen: Seen) -> Bool[Tensor, "seed"]:
    """With weight decay a model generalises sooner than without.

    Share of seeds that generalise with weight decay, and without it later or not at all.
    """
    return seen.generalised[DECAY] < seen.generalised[PLAIN]


@claim(
    "Fig 1 centre",
    "40 to 50 % more steps for one percent of the data less, near the least that suffices",
    at_least(1.1),
)
def less_data_later(seen: Seen) -> Float[Tensor, "seed"] | None:
    """With less data a model generalises later.

    Steps until the test accuracy reaches {LEARNED}, on less over on more data.
    """
    return _ratio(seen.generalised[DECAY], seen.generalised[MORE])


@precondition("Fig 1 left", "accuracy 1", at_least(0.99))
def memorised(seen: Seen) -> Float[Tensor, "seed"]:
    """The training pairs are memorised in every experiment.

    Training accuracy at the end, the lowest of the three experiments, mean over seeds.
    """
    return torch.stack(list(seen.memorised.values())).amin(dim=0)


def _memorised_first(seen: Seen) -> LineFigure:
    found = split_curves(
        "Memorised first, generalised later (Fig 1 left)",
        seen.runs[DECAY],
        {"train": "training pairs", "test": "unseen pairs"},
    )
    return replace(found, log_x=True, references=(Reference("learned", LEARNED),))


def _compared(title: str, labels: Callable[[Setting], Mapping[str, str]]) -> Callable[[Seen], LineFigure]:
    """Return a function that draws the accuracy on unseen pairs of the runs that `labels` maps to their labels."""
    caption = f"{MEAN_AND_RANGE} Accuracy on unseen pairs; the dashed line is the level at which they count as learned."

    def draw(seen: Seen) -> LineFigure:
        runs = {label: seen.runs[name] for name, label in labels(seen.setting).items()}
        references = [Reference("learned", LEARNED)]
        return replace(training_curves(title, runs, "test", caption=caption, references=references), log_x=True)

    return draw


QUICK = Setting(
    model=DecoderSpec(layers=1, heads=4, width=64, head_width=16, hidden=256, layer_norm=False),
    prime=41,
    operation="+",
    fraction=0.6,
    more=0.75,
    decay=1.0,
    recipe=Recipe(
        optimiser=AdamW(learning_rate=3e-3, betas=(0.9, 0.98)),
        schedule=WarmupCosine(warmup=10, horizon=10_000, end=1.0),
        batch=256,
        duration=6000,
        evaluation=Evaluation(every=50, size=500),
    ),
    seeds=6,
)
PAPER = Setting(
    model=DecoderSpec(layers=2, heads=4, width=128, head_width=32, hidden=512, norm="pre"),
    prime=97,
    operation="/",
    fraction=0.5,
    more=0.75,
    decay=1.0,
    recipe=Recipe(
        optimiser=AdamW(learning_rate=1e-3, betas=(0.9, 0.98)),
        schedule=WarmupCosine(warmup=10, horizon=1_000_000, end=1.0),
        batch=512,
        duration=100_000,
        evaluation=Evaluation(every=100, size=500),
    ),
    seeds=3,
)

STUDY = Study(
    "classics/grokking",
    __doc__,
    measures_in(__name__),
    trains=experiments,
    reads=Seen,
    draws=(
        _memorised_first,
        _compared("Weight decay (Fig 2 left)", lambda setting: {DECAY: DECAY, PLAIN: PLAIN}),
        _compared(
            "More and less data (Fig 1 centre)",
            lambda setting: {DECAY: f"{setting.fraction:.0%} of the pairs", MORE: f"{setting.more:.0%} of the pairs"},
        ),
        seed_by_seed(
            "When training and unseen pairs are learned, seed by seed",
            f"The optimiser step at which the accuracy on training and on unseen pairs first reaches {LEARNED}, and "
            "the test accuracy at the end.",
            Seen.fitted,
            Seen.generalised,
            Seen.final,
        ),
        lambda seen: losses(seen.runs[DECAY], seen.progress[DECAY]),
        lambda seen: frequencies(seen.first.experiment.members.seeds, seen.progress[DECAY], seen.progress[PLAIN]),
    ),
    paper="Grokking",
    profiles={
        "quick": Profile(
            QUICK,
            "Sums modulo 41, 60 % of all pairs in training (75 % with more data). Measured on 500 pairs of each "
            "split. The source divides modulo 97, or multiplies permutations, for 100,000 steps and more.",
        ),
        "paper": Profile(
            PAPER,
            "Division modulo 97 with half of all pairs (appendix A.1.2). The source does not say where its norms "
            "are, draws other curves on other operations, and trains up to a million steps, so that outside a band "
            "nothing is contradicted.",
        ),
    },
    smoke=replace(QUICK, recipe=QUICK.recipe.replace(duration=12, evaluation=Evaluation(every=4, size=100)), seeds=2),
    chosen_on=SEEN,
)
