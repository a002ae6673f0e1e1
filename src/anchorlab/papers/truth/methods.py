"""Methods of interpretability, scored against every circuit of a model.

Each method ranks the heads and feed-forward layers of small trained models and of models whose weights are written by
hand. The loss of every subset of these units says which rankings are right.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import combinations, product

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from anchorlab.findings import Map, MapFigure, Scatter, ScatterFigure, Table, at_least, at_most, grid, numbers, within
from anchorlab.lens import landscape
from anchorlab.lens.scoring import rank_correlation
from anchorlab.models import DecoderSpec
from anchorlab.papers.truth.ranking import (
    ABLATION,
    CONTROLS,
    EDGES,
    INTEGRATED,
    INTEGRATED_EDGES,
    METHODS,
    PLAIN,
    RANDOM,
    WRONG,
    Ranked,
    ranked,
    shares,
    split_of,
)
from anchorlab.studies.claim import Measurement, claim, measures_in, over, precondition
from anchorlab.studies.interval import bootstrap
from anchorlab.studies.kit import at_end
from anchorlab.studies.seeds import SEARCHED, fresh
from anchorlab.studies.study import Analysis, Profile, Study
from anchorlab.tasks import Task, task
from anchorlab.theory.compiled import COMPILED, compiled
from anchorlab.training import AdamW, Evaluation, Experiment, Members, Recipe, Stream, Times, TrainedRun, WarmupCosine

VARIANTS = ("backup", "distractor", "cancelling")  # in the plain models every unit is needed: no ranking is wrong
SHARPNESS = 8.0  # attention with a gradient; every answer stays right
ALL = (*METHODS, *CONTROLS)


@dataclass(frozen=True)
class Setting:
    """What a profile trains and ranks.

    Fields
        tasks: the tasks of the trained models
        model, recipe: of all trained models
        compiled: the names of the compiled models
        pairs, sequences: of `ranked`
        seeds: the members on each task
    """

    tasks: tuple[Task, ...]
    model: DecoderSpec
    recipe: Recipe
    compiled: tuple[str, ...]
    pairs: int
    sequences: int
    seeds: int


def experiments(setting: Setting) -> list[Experiment]:
    """Return a training on each task."""
    members = Members(seeds=fresh(setting.seeds))
    return [Experiment(one, setting.model, setting.recipe, members, label_of(one)) for one in setting.tasks]


def label_of(task: Task) -> str:
    """Return a task's name without its family."""
    return task.name.partition("/")[2]


@dataclass(frozen=True)
class Scored:
    """How well methods and controls, in the order of `ALL`, rank the units of trained and of compiled models.

    Fields
        tasks: of the trained members, `[task]`
        trained: one `Ranked` for each task, of all members
        models: the name and the variant of each compiled model
        written: one `Ranked` for each compiled model
        early: `[seed task]`, the rank correlation of a member's Shapley values, by size, at the end of training with
            those when half of its loss had gone
        accuracy: `[seed task]`, of the trained members at the end
    """

    tasks: tuple[str, ...]
    trained: tuple[Ranked, ...]
    models: tuple[tuple[str, str], ...]
    written: tuple[Ranked, ...]
    early: Float[Tensor, "seed task"]
    accuracy: Float[Tensor, "seed task"]

    @cached_property
    def skill(self) -> Float[Tensor, "seed task method"]:
        """`Ranked.skill` of the trained members."""
        return torch.stack([one.skill for one in self.trained], dim=1)

    @cached_property
    def skill_of_compiled(self) -> Float[Tensor, "model method"]:
        """`Ranked.skill` of the compiled models."""
        return torch.cat([one.skill for one in self.written])

    def column(self, name: str) -> Float[Tensor, "seed task method"]:
        """Return a column of `agreement` for the trained members."""
        return torch.stack([one.column(name) for one in self.trained], dim=1)

    def of(self, method: str) -> Float[Tensor, "seed"]:
        """Return the skill of a method or control on each seed, mean over tasks."""
        return self.skill[..., ALL.index(method)].nanmean(dim=1)


def see(runs: Sequence[TrainedRun], setting: Setting) -> Scored:
    """Rank the units of the runs' members and of the compiled models."""
    sizes = setting.pairs, setting.sequences
    trained = [ranked(run.ensemble(), run.experiment.task, *sizes, seed) for seed, run in enumerate(runs)]
    return Scored(
        tuple(label_of(run.experiment.task) for run in runs),
        tuple(trained),
        tuple(product(setting.compiled, VARIANTS)),
        _written(setting.compiled, *sizes),
        torch.stack([_early(run, one, setting) for run, one in zip(runs, trained, strict=True)], dim=1),
        torch.stack([at_end(run, split_of(run.experiment.task), "accuracy").double() for run in runs], dim=1),
    )


@lru_cache(maxsize=1)  # the control reads the same
def _written(names: tuple[str, ...], pairs: int, sequences: int) -> tuple[Ranked, ...]:
    """Return what is said of every variant of some compiled models."""
    made = [compiled(*one, rotated=True, sharpness=SHARPNESS) for one in product(names, VARIANTS)]
    return tuple(ranked(one.ensemble, one.task, pairs, sequences, seed) for seed, one in enumerate(made))


def half_way(run: TrainedRun) -> list[int]:
    """Return for each member the first checkpoint at which half of the loss has gone that it loses in training."""
    table = run.metric("loss", split_of(run.experiment.task))
    found = []
    for member in range(len(run.experiment.members)):
        own = table.filter(table["member"] == member)
        steps, losses = own["step"].to_list(), own["value"].to_list()
        middle = (losses[0] + losses[-1]) / 2
        reached = next((step for step, loss in zip(steps, losses, strict=True) if loss <= middle), steps[-1])
        found.append(next(step for step in run.checkpoints if step >= reached))
    return found


def _early(run: TrainedRun, end: Ranked, setting: Setting) -> Float[Tensor, "seed"]:
    """Return the rank correlation of each member's Shapley values half way with its last ones."""
    at = half_way(run)
    found = torch.empty_like(end.truth.shapley)
    for step in sorted(set(at)):
        members = [member for member, own in enumerate(at) if own == step]
        then = landscape(
            run.ensemble(step).select(members),
            "all",
            task=run.experiment.task,
            split=split_of(run.experiment.task),
            sequences=setting.sequences,
            progress=False,
        )
        found[members] = then.shapley
    return rank_correlation(found.abs(), end.truth.shapley.abs())


QUESTION = "our own question"
NOBODY = "no paper"


@claim(
    "Gradients integrated along a path find circuits better than the gradient at its end",
    at=QUESTION,
    paper=NOBODY,
    band=at_least(0.02),
)
def integrated_gradients(seen: Scored) -> Float[Tensor, "seed"]:
    """Skill of attribution patching, with five integrated steps minus one, mean over units and edges and over tasks."""
    return (seen.of(INTEGRATED) - seen.of(PLAIN) + seen.of(INTEGRATED_EDGES) - seen.of(EDGES)) / 2


@claim(
    "Replacing one unit at a time misses units that have a backup, in compiled models",
    at=QUESTION,
    paper=NOBODY,
    band=at_most(0.1),
)
def backups_missed(seen: Scored) -> Measurement:
    """Rise of the loss if a head with a backup is replaced alone, as a share of the largest rise of any unit, mean over
    such heads and over compiled models with a backup."""
    found = []
    for (_, variant), one in zip(seen.models, seen.written, strict=True):
        if variant == "backup":
            rise = one.scores[ABLATION].values[0]
            found.append((rise[with_backup(one)[0]] / rise.max()).mean())
    return over(torch.stack(found), of="models")


@claim(
    "Replacing one unit at a time misses units that have a backup, in trained models",
    at=QUESTION,
    paper=NOBODY,
    band=at_most(0.5),
)
def backups_missed_when_trained(seen: Scored) -> Float[Tensor, "seed"] | None:
    """Rise of the loss if one unit alone is replaced over its Shapley value, both summed over units with a backup and
    over tasks, relative to the same ratio of units without one."""
    rise = torch.cat([one.scores[ABLATION].values for one in seen.trained], dim=1)
    value = torch.cat([one.truth.shapley for one in seen.trained], dim=1)
    backup = torch.cat([with_backup(one) for one in seen.trained], dim=1)
    some, others = ((rise * which).sum(dim=1) / (value * which).sum(dim=1) for which in (backup, ~backup))
    found = some / others
    return found if bool(found.isfinite().all()) else None


def with_backup(one: Ranked) -> Bool[Tensor, "member unit"]:
    """Return which units another can stand in for, in some minimal circuit."""
    return one.truth.backups().any(dim=1)


@claim(
    "Every method is worse on trained models than on compiled ones",
    at=QUESTION,
    paper=NOBODY,
    band=at_least(0.0),
)
def worse_when_trained(seen: Scored) -> Float[Tensor, "seed"]:
    """Skill on compiled models minus skill on trained ones, both means over models, lowest over methods."""
    trained = torch.stack([seen.of(method) for method in METHODS], dim=1)
    return (seen.skill_of_compiled[:, : len(METHODS)].nanmean(dim=0) - trained).amin(dim=1)


@claim(
    "Circuits of two seeds of one task differ more than what two methods say of one seed",
    at=QUESTION,
    paper=NOBODY,
    band=at_least(0.0),
)
def seeds_differ(seen: Scored) -> Float[Tensor, "seed"]:
    """Distance between the Shapley values of a seed and the next, minus the mean distance between the scores of two
    methods on one seed, mean over tasks. The distance is half the sum of differences of their sizes, as shares;
    between seeds, heads of one layer are matched by size, as their order means nothing."""
    found = []
    for one in seen.trained:
        own = sorted_by_size(shares(one.truth.shapley), one.truth.units)
        methods = [one.shares(name) for name in METHODS]
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


@claim(
    "What matters at the end of training mattered when half of the loss had gone",
    at=QUESTION,
    paper=NOBODY,
    band=at_least(0.8),
)
def there_when_learned(seen: Scored) -> Float[Tensor, "seed"]:
    """Rank correlation of the sizes of Shapley values, at the first checkpoint at which half of the loss that training
    removes had gone, with those at its end, mean over tasks."""
    return seen.early.nanmean(dim=1)


@claim("A random ranking is as good as chance", at=QUESTION, paper=NOBODY, band=within(-0.25, 0.25))
def random_at_chance(seen: Scored) -> Float[Tensor, "seed"]:
    """Skill of a random ranking, mean over tasks."""
    return seen.of(RANDOM)


@claim("A wrong circuit is worse than chance", at=QUESTION, paper=NOBODY, band=at_most(-0.25))
def wrong_fails(seen: Scored) -> Float[Tensor, "seed"]:
    """Skill of the units ranked from the smallest Shapley value to the largest, mean over tasks."""
    return seen.of(WRONG)


@precondition("The trained models solve their tasks", at=QUESTION, paper=NOBODY, band=at_least(0.95))
def learns(seen: Scored) -> Float[Tensor, "seed"]:
    """Test accuracy, lowest over tasks, mean over seeds."""
    return seen.accuracy.amin(dim=1)


def analyse(runs: Sequence[TrainedRun], setting: Setting) -> Analysis:
    """Draw the skill of every method on every task, and skill against cost."""
    seen = see(runs, setting)
    return Analysis(seen, figures=[_heat(seen), _cost(seen)], tables=[_methods(seen), _failures(seen)])


SKILL = "Skill: the area under the ROC curve against the nearest minimal circuit, 0 as by chance and 1 if all is right."


def _of_variant(seen: Scored, variant: str) -> Float[Tensor, "method"]:
    of = [place for place, (_, own) in enumerate(seen.models) if own == variant]
    return seen.skill_of_compiled[of].nanmean(dim=0)


def _heat(seen: Scored) -> MapFigure:
    columns = [*seen.skill.nanmean(dim=0), *(_of_variant(seen, variant) for variant in VARIANTS)]
    names = (*seen.tasks, *(f"compiled, {variant}" for variant in VARIANTS))
    return MapFigure(
        "Skill of each method and control on each task",
        f"{SKILL} Mean over seeds, and over compiled models; empty for a control that one member cannot have.",
        ((Map("", grid(torch.stack(columns, dim=1)), row_ticks=ALL, column_ticks=names),),),
        x_label="",
        y_label="",
        value_label="skill",
        value_range=(-1.0, 1.0),
        signed=True,
    )


def _cost(seen: Scored) -> ScatterFigure:
    def scatter(title: str, of: Sequence[Ranked], skill: Float[Tensor, "method"]) -> Scatter:
        passes = [
            torch.tensor([sum(one.scores[name].passes) for one in of], dtype=torch.float64).mean() for name in METHODS
        ]
        return Scatter(title, numbers(passes), numbers(skill[: len(METHODS)]), numbers(range(len(METHODS))))

    return ScatterFigure(
        "Skill against cost",
        f"{SKILL} Mean over seeds and tasks, or over compiled models; passes forward and backward of all sequences.",
        (
            scatter("trained", seen.trained, seen.skill.nanmean(dim=(0, 1))),
            scatter("compiled", seen.written, seen.skill_of_compiled.nanmean(dim=0)),
        ),
        x_label="passes",
        y_label="skill",
        value_label="method",
        value_names=METHODS,
    )


def _methods(seen: Scored) -> Table:
    correlation, recovered = (seen.column(name).nanmean(dim=1) for name in ("correlation", "recovered"))
    rows: list[tuple[str | int | float | None, ...]] = []
    for place, name in enumerate(ALL):
        passes = [one.scores[name].passes for one in seen.trained]
        rows.append(
            (
                name,
                *_with_interval(seen.of(name)),
                *_with_interval(seen.skill_of_compiled[:, place]),
                *_with_interval(correlation[:, place]),
                *_with_interval(recovered[:, place]),
                *(round(sum(each) / len(passes)) for each in zip(*passes, strict=True)),
            )
        )
    return Table(
        "Agreement of each method and control with the truth",
        f"{SKILL} Correlation: Spearman's, with the sizes of exact Shapley values. Recovered: the share of the effect "
        "that the highest units recover, as many as the smallest circuit has. Means with 95 % intervals over seeds, "
        "each the mean over tasks, and over compiled models; passes are means over tasks.",
        (
            *("ranking", "skill, trained", "from", "to", "skill, compiled", "from", "to"),
            *("correlation", "from", "to", "recovered", "from", "to", "forward", "backward"),
        ),
        tuple(rows),
    )


def _with_interval(values: Float[Tensor, "unit"]) -> tuple[float | None, float | None, float | None]:
    own = values[values.isfinite()]
    interval = bootstrap(own) or (None, None)
    return (float(own.mean()), *interval) if len(own) else (None, None, None)


def _failures(seen: Scored) -> Table:
    rows: list[tuple[str | int | float | None, ...]] = [
        (
            name,
            *(float(_of_variant(seen, variant)[place]) for variant in VARIANTS),
            float(torch.stack([early_weight(one, name) for one in seen.trained]).mean()),
        )
        for place, name in enumerate(METHODS)
    ]
    return Table(
        "Where methods fail",
        f"{SKILL} Skill on compiled models by what makes them hard; and the share of a method's scores in layer 0 "
        "minus the share of Shapley values there, mean over trained members: below 0, early layers are underrated.",
        ("method", *VARIANTS, "weight of layer 0"),
        tuple(rows),
    )


def early_weight(one: Ranked, method: str) -> Float[Tensor, "member"]:
    """Return the share of a method's scores that units of layer 0 have, minus their share of Shapley values."""
    early = torch.tensor([unit.startswith("0.") for unit in one.truth.units])
    return (one.shares(method) - shares(one.truth.shapley))[:, early].sum(dim=1)


QUICK = Setting(
    tasks=(
        task("anchor/identity"),
        task("anchor/two-distances"),
        task("anchor/reading-comprehension"),
        task("anchor/frequency"),
        task("classics/associative-recall", pairs=2, length=6, vocabulary=8),
        task("classics/repeated-sequence", length=16, vocabulary=20, periods=(3, 6)),
        task("classics/brackets", length=12),
        task("retrieval/tokens", steps=1, symbols=12),
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
    pairs=48,
    sequences=200,
    seeds=8,
)

STUDY = Study(
    name="truth/methods",
    doc=__doc__,
    claims=measures_in(__name__),
    experiments=experiments,
    analyse=analyse,
    profiles={
        "quick": Profile(
            QUICK,
            "Quick profile: eight tasks of eight members, decoders of two layers of four heads with feed-forward "
            "layers, width 32, 1000 steps of batch 64 on new sequences; 27 compiled models, rotated, with soft "
            "attention. Methods see 48 pairs of sequences; units are replaced by their mean over 200.",
        ),
    },
    smoke=replace(
        QUICK,
        tasks=QUICK.tasks[:1] + QUICK.tasks[-1:],
        model=QUICK.model.replace(heads=2),
        recipe=QUICK.recipe.replace(
            duration=20,
            schedule=WarmupCosine(warmup=2, horizon=20, end=0.1),
            evaluation=Evaluation(every=10, size=50),
            checkpoints=Times(every=10),
        ),
        compiled=COMPILED[:1],
        pairs=8,
        sequences=20,
        seeds=2,
    ),
    chosen_on=SEARCHED,
)
