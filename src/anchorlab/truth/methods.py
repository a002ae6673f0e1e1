"""Methods of interpretability, scored against every circuit of a model.

Each method ranks the heads and feed-forward layers of small trained models and of models whose weights are written by
hand. The loss of every subset of these units says which rankings are right.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from anchorlab.findings import at_least, at_most
from anchorlab.models import DecoderSpec
from anchorlab.studies import Profile, Study, claim, measures_in, precondition
from anchorlab.studies.seeds import SEARCHED
from anchorlab.tasks import task
from anchorlab.training import AdamW, Evaluation, Experiment, Members, Recipe, Stream, Times, WarmupCosine
from anchorlab.truth import drawing, ranked
from anchorlab.truth.models import COMPILED
from anchorlab.truth.seen import ON_HEADS, Population, Seen, Setting, best
from anchorlab.truth.variants import SELECTIVE

SEEN = (*SEARCHED, *range(1000, 1008), *range(1100, 1108))  # the seeds of earlier published forms of this study
FIRST = 1200  # the seed of the first member


def experiments(setting: Setting) -> dict[str, Experiment]:
    """Return the experiment that trains each population, by the population's label."""
    members = Members(seeds=range(FIRST, FIRST + setting.seeds))
    return {
        one.label: Experiment(
            one.task,
            setting.model.replace(layers=one.layers, heads=one.heads, head_width=setting.model.width // one.heads),
            setting.recipe,
            members,
            one.label,
        )
        for one in setting.populations
    }


QUESTION = "our own question"
NO_PAPER = "no paper"


@claim(QUESTION, NO_PAPER, at_least(0.02))
def integrated_gradients(seen: Seen) -> Float[Tensor, "seed"]:
    """Gradients integrated along a path find circuits better than the gradient at its end.

    Skill of attribution patching with five integration steps minus its skill with one step, each in its best form, mean
    over units and edges and over tasks.
    """
    return (
        seen.best(ranked.INTEGRATED)
        - seen.best(ranked.PLAIN)
        + seen.best(ranked.INTEGRATED_EDGES)
        - seen.best(ranked.EDGES)
    ) / 2


@claim(QUESTION, NO_PAPER, at_least(0.02))
def pair_misleads(seen: Seen) -> Float[Tensor, "seed"]:
    """A paired sequence is the wrong baseline for the gradient at the clean end.

    Skill of attribution patching with the mean or zero as its baseline, mean over both, minus that with the pair, mean
    over tasks.
    """
    pair, *others = (seen.of(f"{ranked.PLAIN}, {one}") for one in ("pair", "mean", "zero"))
    return torch.stack(others).mean(dim=0) - pair


@claim(QUESTION, NO_PAPER, at_least(0.02))
def loss_finds_more(seen: Seen) -> Float[Tensor, "seed"]:
    """Effects on the loss find circuits better than effects on the difference of logits.

    Skill of methods if effects are measured on the loss, as in the truth but on other sequences, minus their skill if
    effects are measured on the difference of logits, each with its best baseline, mean over activation and attribution
    patching, of units and edges, and over tasks.
    """
    methods = (ranked.PATCHING, ranked.PLAIN, ranked.INTEGRATED, ranked.EDGES, ranked.INTEGRATED_EDGES)
    return torch.stack([seen.best(name, True) - seen.best(name, False) for name in methods]).mean(dim=0)


@claim(QUESTION, NO_PAPER, at_most(0.5))
def backups_missed_when_trained(seen: Seen) -> Float[Tensor, "seed"] | None:
    """Replacing one unit at a time misses units that have a backup, in trained models.

    Rise of the loss if one unit alone is replaced, divided by its Shapley value, both summed over units with a backup
    and over tasks, relative to the same ratio for units without a backup.
    """
    rise = torch.cat([one.scores[ranked.ABLATION].values for one in seen.trained], dim=1)
    value = torch.cat([one.truth.shapley for one in seen.trained], dim=1)
    backup = torch.cat([with_backup(one) for one in seen.trained], dim=1)
    some, others = ((rise * which).sum(dim=1) / (value * which).sum(dim=1) for which in (backup, ~backup))
    found = some / others
    return found if bool(found.isfinite().all()) else None


def with_backup(one: ranked.Ranked) -> Bool[Tensor, "member unit"]:
    """Return which units have a backup: another unit that can take their place in some minimal circuit."""
    return one.truth.backups().any(dim=1)


@claim(QUESTION, NO_PAPER, at_least(0.0))
def worse_when_trained(seen: Seen) -> Float[Tensor, "seed"]:
    """Every method is worse on trained models than on compiled ones.

    Skill on compiled models minus skill on trained ones, both means over models in the best form, lowest over methods
    that take nothing from the truth.
    """
    written = seen.skill_of_compiled.nanmean(dim=0)
    return torch.stack([best(written, name) - seen.best(name) for name in ranked.FAMILIES]).amin(dim=0)


@claim(QUESTION, NO_PAPER, at_least(0.0))
def seeds_differ(seen: Seen) -> Float[Tensor, "seed"]:
    """Circuits of two seeds of one task differ more than the scores of two methods on one seed.

    Distance between the Shapley values of a seed and of the next seed, minus the mean distance between the scores of
    two methods on one seed, mean over tasks. Methods replace units by their mean, as Shapley values do. The distance is
    half the sum of absolute differences of sizes, as shares of their sum; between seeds, heads of one layer are matched
    by size, as their order means nothing.
    """
    found = []
    for one in seen.trained:
        own = sorted_by_size(ranked.shares(one.truth.shapley), one.truth.units)
        methods = [one.shares(f"{name}, mean") for name in ranked.BY_BASELINE]
        between = torch.stack([distance(*pair) for pair in combinations(methods, 2)]).mean(dim=0)
        found.append(distance(own, own.roll(-1, dims=0)) - between)
    return torch.stack(found).mean(dim=0)


def distance(one: Float[Tensor, "member unit"], other: Float[Tensor, "member unit"]) -> Float[Tensor, "member"]:
    """Return the total variation distance of two distributions over units."""
    return (one - other).abs().sum(dim=1) / 2


def sorted_by_size(values: Float[Tensor, "member unit"], units: Sequence[str]) -> Float[Tensor, "member unit"]:
    """Return values with the heads of each layer in order of size, the largest first."""
    found = values.clone()
    for layer in dict.fromkeys(unit.partition(".")[0] for unit in units):
        heads = [place for place, unit in enumerate(units) if unit.startswith(f"{layer}.") and unit != f"{layer}.mlp"]
        found[:, heads] = values[:, heads].sort(dim=1, descending=True).values
    return found


@claim(QUESTION, NO_PAPER, at_least(0.8))
def there_when_learned(seen: Seen) -> Float[Tensor, "seed"]:
    """The units that matter at the end of training already mattered when the loss had fallen half way.

    Rank correlation between the sizes of Shapley values at the first checkpoint at which the loss has fallen by half of
    its total fall in training and those at the end of training, mean over tasks.
    """
    return seen.early.nanmean(dim=1)


@claim(QUESTION, NO_PAPER, at_least(0.02))
def shared_replacement(seen: Seen) -> Float[Tensor, "seed"]:
    """Methods gain from a baseline that replaces units as the truth does.

    Skill with the mean minus skill with the paired sequence, if the truth replaces units by their mean, minus the same
    difference if it takes another sequence's values, mean over methods and over populations.
    """
    gains = [
        seen.of(f"{name}, mean", other) - seen.of(f"{name}, pair", other)
        for other in (False, True)
        for name in ranked.BY_BASELINE
    ]
    by_mean, resampled = torch.stack(gains).chunk(2)
    return (by_mean - resampled).mean(dim=0)


@claim(QUESTION, NO_PAPER, at_least(0.02))
def exact_paths(seen: Seen) -> Float[Tensor, "seed"]:
    """Patching each path finds circuits better than estimating the effect of each path by gradients.

    Skill of path patching minus that of edge attribution patching, by the difference of logits, each with its best
    baseline, mean over populations.
    """
    return seen.best(ranked.PATHS, False) - seen.best(ranked.EDGES, False)


@claim(QUESTION, NO_PAPER, at_least(0.05))
def worse_when_deeper(seen: Seen) -> Float[Tensor, "seed"] | None:
    """Methods rank the units of three-layer models worse than the units of two-layer models.

    Skill on members of two layers minus skill on members of three layers, each method in its best form, mean over
    methods that take nothing from the truth and over the tasks that have both.
    """
    deep = {one.task.name: place for place, one in enumerate(seen.populations) if one.layers == 3}
    flat = {one.task.name: place for place, one in reversed([*enumerate(seen.populations)]) if one.layers == 2}
    both = [(flat[name], place) for name, place in deep.items() if name in flat]
    if not both:
        return None
    shallow, three = (seen.skill[:, list(places)].nanmean(dim=1) for places in zip(*both, strict=True))
    return torch.stack([best(shallow, name) - best(three, name) for name in ranked.FAMILIES]).mean(dim=0)


@claim(QUESTION, NO_PAPER, at_least(0.25))
def recognised(seen: Seen) -> Float[Tensor, "seed"]:
    """Heads that a detector recognises are those that a model needs.

    Skill on heads alone of a ranking by the strongest detector, mean over populations.
    """
    return seen.skill_on_heads[..., ON_HEADS.index(ranked.DETECTORS)].nanmean(dim=1)


@precondition(QUESTION, NO_PAPER, at_least(0.95))
def learns(seen: Seen) -> Float[Tensor, "seed"]:
    """The trained models solve their tasks.

    Test accuracy, lowest over tasks, mean over seeds.
    """
    return seen.accuracy.amin(dim=1)


TASKS = {
    one.name.partition("/")[2]: one
    for one in (
        task("anchor/identity"),
        task("anchor/two-distances"),
        task("anchor/reading-comprehension"),
        task("anchor/frequency"),
        task("classics/associative-recall", pairs=2, length=6, vocabulary=8),
        task("classics/repeated-sequence", length=16, vocabulary=20, periods=(3, 6)),
        task("classics/brackets", length=12),
        task("retrieval/tokens", steps=1, symbols=12),
    )
}

QUICK = Setting(
    populations=(
        *(Population(one, layers=2, heads=4) for one in TASKS.values()),
        *(Population(TASKS[name], layers=3, heads=2) for name in ("identity", "two-distances", "associative-recall")),
        Population(TASKS["associative-recall"], layers=2, heads=3),
        Population(TASKS["identity"], layers=2, heads=2),
    ),
    model=DecoderSpec(layers=2, heads=4, width=32, head_width=8, norm="pre"),
    recipe=Recipe(
        data=Stream(),
        batch=64,
        optimiser=AdamW(learning_rate=4e-3, weight_decay=0.0),
        schedule=WarmupCosine(warmup=50, horizon=1000, end=0.1),
        duration=1000,
        clip=1.0,
        evaluation=Evaluation(every=50, size=300),
        checkpoints=Times(every=50),
    ),
    compiled=COMPILED,
    variants=SELECTIVE,
    pairs=24,
    sequences=80,
    seeds=8,
)

STUDY = Study(
    "truth/methods",
    __doc__,
    measures_in(__name__),
    trains=experiments,
    reads=Seen,
    draws=(
        drawing.skill_figure,
        drawing.cost_figure,
        drawing.method_table,
        drawing.metric_table,
        drawing.truth_table,
        drawing.shape_table,
        drawing.failure_table,
    ),
    profiles={
        "quick": Profile(
            QUICK,
            "13 populations of eight members on eight tasks, and 27 compiled models, rotated, heads in random order, "
            "with soft attention. Methods see 24 pairs of sequences, landscapes 80 sequences.",
        )
    },
    smoke=replace(
        QUICK,
        populations=(Population(TASKS["identity"], 1, 2),),
        recipe=QUICK.recipe.replace(
            duration=4,
            schedule=WarmupCosine(warmup=2, horizon=4, end=0.1),
            evaluation=Evaluation(every=2, size=50),
            checkpoints=Times(every=2),
        ),
        compiled=COMPILED[:1],
        variants=SELECTIVE[:1],
        pairs=8,
        sequences=20,
        seeds=2,
    ),
    chosen_on=SEEN,
)
