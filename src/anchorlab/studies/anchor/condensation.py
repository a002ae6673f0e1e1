"""Condensation: heads of one layer are alike.

Models of four layers on the identity task, whose weights begin as N(0, d^-2γ). How alike are the heads of
layer 1, and the neurons of its feed-forward network?

Source: anchor functions, section 6.2, Figure 19.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from anchorlab.findings import LineFigure, MapFigure, Table, at_least, within
from anchorlab.lens import broadcast_profile, condensation, head_similarity, look
from anchorlab.models import DecoderSpec
from anchorlab.studies.anchor.settings import Setting, paper_recipe, quick_model, quick_recipe
from anchorlab.studies.claim import Measurement, claim, measures_in, over, precondition
from anchorlab.studies.kit import ACCURACY, at_end, attention_maps, curves_against, example
from anchorlab.studies.seeds import SEARCHED, fresh
from anchorlab.studies.shared_seeds import mean_of_known, over_shared
from anchorlab.studies.study import Analysis, Profile, Study
from anchorlab.tasks import task
from anchorlab.training import Experiment, Members, Times, TrainedRun

MANY, LARGE, SMALL = 12, 0.5, 0.8
"""The paper's number of heads; the rates γ of a large and of a small initialisation, N(0, d^-2γ)."""

LEARNED = 0.9
"""A member is judged if its test accuracy is at least this."""

FIG_19 = "section 6.2 and Fig 19"
LOOKED_AT = 200  # test sequences over which maps are averaged
PATTERNS, NEURONS = "blocks.1.attn.hook_pattern", "blocks.1.mlp.W_in"  # Figure 19 shows the second layer


@dataclass(frozen=True)
class Grid(Setting):
    """A setting with each number of heads, all of whose seeds train at every initialisation rate γ."""

    heads: tuple[int, ...]
    gammas: tuple[float, ...]


QUICK = Grid(
    quick_model(layers=4).replace(head_width=16),
    quick_recipe(2000, learning_rate=2e-3),
    seeds=5,
    heads=(2, 4, MANY),
    gammas=(LARGE, 0.65, SMALL),
)
PAPER = Grid(DecoderSpec(), paper_recipe(2000), seeds=5, heads=(2, 4, 8, MANY), gammas=(0.3, LARGE, 0.65, SMALL))


def experiments(setting: Grid) -> list[Experiment]:
    """Return an experiment for each number of heads; its members are the seeds at the first γ, then at the next."""
    gammas = tuple(gamma for gamma in setting.gammas for _ in range(setting.seeds))
    members = Members(seeds=fresh(setting.seeds) * len(setting.gammas), gamma={"all": gammas})
    recipe = setting.recipe.replace(checkpoints=Times(at=(0,)))
    models = {count: setting.model.replace(heads=count, initialisation="gamma") for count in setting.heads}
    return [
        Experiment(task("anchor/identity"), model, recipe, members, f"identity, four layers of {count} heads")
        for count, model in models.items()
    ]


@dataclass(frozen=True)
class Layer:
    """Layer 1 under one number of heads."""

    gammas: tuple[float, ...]
    accuracy: Float[Tensor, "gamma seed"]  # test accuracy at the end
    alike: Float[Tensor, "gamma seed"]  # cosine of two heads' maps, as they differ from even attention
    alike_untrained: Float[Tensor, "gamma seed"]
    broadcasting: Float[Tensor, "gamma seed"]  # share of heads that broadcast from the most common place
    neurons: Float[Tensor, "gamma seed"]  # condensation number
    neurons_untrained: Float[Tensor, "gamma seed"]

    def of_learned(self, values: Float[Tensor, "gamma seed"], *gammas: float) -> Float[Tensor, "chosen_gamma seed"]:
        """Return the values of the members that learned at some γ, in their order; NaN for the others."""
        chosen = [self.gammas.index(gamma) for gamma in gammas]
        return values[chosen].where(self.accuracy[chosen] >= LEARNED, torch.nan)


def see(runs: Sequence[TrainedRun]) -> dict[int, Layer]:
    """Read what layer 1 has become, by the number of heads."""
    return {run.experiment.model.heads: read_layer(run) for run in runs}  # type: ignore[attr-defined]


def read_layer(run: TrainedRun) -> Layer:
    """Read what layer 1 of one run's members has become."""
    gammas = tuple(dict.fromkeys(run.experiment.members.gamma.given["all"]))
    batch = run.experiment.task.sample("test", LOOKED_AT, seed=0)
    before, after = run.ensemble(0), run.ensemble()
    untrained, trained = (look(one, batch.inputs, record=[PATTERNS])[PATTERNS] for one in (before, after))
    values = (
        at_end(run, "test", "accuracy"),
        head_similarity(beyond_even(trained)),
        head_similarity(beyond_even(untrained)),
        share_broadcasting(trained, batch.latents["anchor_positions"][:, 0]),
        condensation(after.weights[NEURONS]),
        condensation(before.weights[NEURONS]),
    )
    return Layer(gammas, *(value.view(len(gammas), -1) for value in values))


def beyond_even(pattern: Float[Tensor, "*lead query key"]) -> Float[Tensor, "*lead query key"]:
    """Return how causal patterns differ from attention to all positions alike, which untrained heads come near to."""
    even = torch.ones(pattern.shape[-2:]).tril()
    return pattern - even / even.sum(dim=-1, keepdim=True)


def share_broadcasting(
    pattern: Float[Tensor, "member batch head query key"], anchors: Int[Tensor, "batch"]
) -> Float[Tensor, "member"]:
    """Return the share of a layer's heads that do the layer's most common broadcast.

    The source of a head is the place, counted from the anchor, that the last position reads most; it must get at least
    half of the attention.
    """
    sources = broadcast_profile(pattern, anchors, queries="last")
    common = sources.best.mode(dim=-1, keepdim=True).values
    return ((sources.best == common) & (sources.value >= 0.5)).float().mean(dim=-1)


def _many(seen: Mapping[int, Layer]) -> Layer | None:
    """The layer of the paper's number of heads, if it was trained at both γ."""
    many = seen.get(MANY)
    return many if many is not None and {LARGE, SMALL} <= set(many.gammas) else None


def _of_learned(seen: Mapping[int, Layer], name: Literal["alike", "broadcasting"]) -> Measurement | None:
    """A value of the members that learned, at both γ."""
    many = _many(seen)
    if many is None:
        return None
    return mean_of_known(many.of_learned(getattr(many, name), LARGE, SMALL).T)


def _rise(seen: Mapping[int, Layer], name: Literal["alike", "neurons"]) -> Measurement | None:
    """How much higher a value is at the small initialisation than at the large one, means over members that learned."""
    many = _many(seen)
    if many is None:
        return None
    both = many.of_learned(getattr(many, name), SMALL, LARGE)
    if bool(both.isnan().all(dim=1).any()):
        return None
    return over_shared(both.T, lambda rows: rows[:, 0].nanmean() - rows[:, 1].nanmean())


@precondition(
    f"A model of four layers with {MANY} heads each learns the task",
    at=FIG_19,
    paper="implied: maps are of a trained model",
    band=within(0.95, 1.0),
)
def learned(seen: Mapping[int, Layer]) -> Measurement | None:
    """Test accuracy at γ = {LARGE:g} and {SMALL:g}, mean over both and seeds."""
    many = _many(seen)
    if many is None:
        return None
    return over(many.accuracy[[many.gammas.index(gamma) for gamma in (LARGE, SMALL)]].mean(dim=0))


@claim("The heads of layer 1 are alike", at=FIG_19, paper="highly similar", band=within(0.8, 1.0))
def heads_alike(seen: Mapping[int, Layer]) -> Measurement | None:
    """Cosine similarity of the maps of two heads less even attention, at γ = {LARGE:g} and {SMALL:g}, mean over pairs
    and inputs, mean over members with a test accuracy of at least {LEARNED:g}."""
    return _of_learned(seen, "alike")


@claim(
    "All heads of layer 1 broadcast from the same place",
    at=FIG_19,
    paper="all perform the broadcast operation",
    band=within(0.8, 1.0),
)
def all_broadcast(seen: Mapping[int, Layer]) -> Measurement | None:
    """Share of heads from whose best source, counted from the anchor, the last position reads that are of the member's
    most common one and put at least half of their attention there; mean over members with a test accuracy of at least
    {LEARNED:g}."""
    return _of_learned(seen, "broadcasting")


@claim(
    "The smaller the initialisation, the more the neurons of a layer are condensed",
    at="section 6.2",
    paper="more condensed",
    band=at_least(0.05),
)
def neurons_with_gamma(seen: Mapping[int, Layer]) -> Measurement | None:
    """Condensation number of layer 1's neurons at γ = {SMALL:g} minus that at γ = {LARGE:g}, {MANY} heads,
    difference of means."""
    return _rise(seen, "neurons")


@claim(
    "The smaller the initialisation, the more the heads of a layer are alike",
    at="section 6.2 (expected of heads from neurons)",
    paper="expected; no value in the text",
    band=at_least(0.05),
)
def heads_with_gamma(seen: Mapping[int, Layer]) -> Measurement | None:
    """Similarity of heads, measured so, at γ = {SMALL:g} minus that at γ = {LARGE:g}, {MANY} heads, difference of
    means."""
    return _rise(seen, "alike")


def analyse(runs: Sequence[TrainedRun], setting: Grid) -> Analysis:
    """Draw and list how alike heads and neurons are, over the number of heads and the initialisation."""
    seen = dict(sorted(see(runs).items()))
    heads = {count: layer.alike for count, layer in seen.items()}
    neurons = {count: layer.neurons for count, layer in seen.items()}
    return Analysis(
        seen,
        figures=[
            _maps(runs[-1]),
            _curves("heads", heads, setting.gammas, "Heads: cosine of two heads' maps less even attention."),
            _curves("neurons", neurons, setting.gammas, "Neurons: absolute cosine of two neurons' input weights."),
        ],
        tables=[_table(seen)],
    )


def _maps(run: TrainedRun) -> MapFigure:
    accuracy, members = at_end(run, "test", "accuracy"), run.experiment.members
    batch = run.experiment.task.sample("test", LOOKED_AT, seed=0)
    patterns = look(run.ensemble(), batch.inputs, record=[PATTERNS])[PATTERNS]
    member = typical(head_similarity(beyond_even(patterns)), accuracy >= LEARNED)
    place, ticks = example(run.experiment.task, batch, batch.latents["anchor_positions"][:, 0] == 4)
    figure = attention_maps(
        "The heads of layer 1 (Fig 19)",
        {f"head {head}": values for head, values in enumerate(patterns[member, place])},
        ticks,
        caption=f"Seed {members.seeds[member]} at γ = {members.gamma.given['all'][member]:g}, with a test accuracy of "
        f"{float(accuracy[member]):.3g}, on one test sequence: of the members that learned, the one with the median "
        "similarity of heads. In the paper all twelve are alike: they broadcast.",
        seed=members.seeds[member],
    )
    (maps,) = figure.maps
    return replace(figure, maps=tuple(maps[start : start + 4] for start in range(0, len(maps), 4)))


def typical(values: Float[Tensor, "member"], among: Bool[Tensor, "member"]) -> int:
    """Return the member that has the median value of some members, or of all where there are none."""
    chosen = among if bool(among.any()) else torch.ones_like(among)
    return int((values - values[chosen].median()).abs().where(chosen, torch.inf).argmin())


def _curves(of: str, values: Mapping[int, Tensor], gammas: Sequence[float], explanation: str) -> LineFigure:
    """The figure of values `[gamma seed]` by number of heads."""
    return curves_against(
        f"How alike the {of} of layer 1 are, by initialisation",
        gammas,
        {f"{count} heads": value.T for count, value in values.items()},
        x_label="initialisation rate γ",
        y_label="cosine similarity of two heads" if of == "heads" else "condensation number",
        caption="Mean over seeds, learned or not; the band reaches from the lowest to the highest. A larger γ is a "
        f"smaller initialisation. {explanation}",
        y_range=ACCURACY,
    )


def _table(seen: Mapping[int, Layer]) -> Table:
    rows = []
    for count, layer in seen.items():
        heads = (layer.alike, layer.alike_untrained, layer.broadcasting)
        values = (layer.accuracy, *heads, layer.neurons, layer.neurons_untrained)
        for index, gamma in enumerate(layer.gammas):
            rows.append((count, gamma, *(float(value[index].mean()) for value in values)))
    return Table(
        title="Layer 1 by number of heads and initialisation",
        caption="Means over seeds. Heads are compared less even attention, which untrained heads come near to.",
        columns=(
            "heads",
            "γ",
            "test accuracy",
            "heads alike",
            "heads alike, untrained",
            "heads that broadcast alike",
            "neurons condensed",
            "neurons condensed, untrained",
        ),
        rows=tuple(rows),
    )


STUDY = Study(
    name="anchor/condensation",
    doc=__doc__,
    claims=measures_in(__name__),
    experiments=experiments,
    analyse=analyse,
    profiles={
        "quick": Profile(
            QUICK,
            "Quick profile: four layers of 2, 4 and 12 heads of width 16, stream 64 wide, three rates γ, five seeds "
            "each; 2000 sequences, 600 steps of batch 50 with learning rate 2e-3 and weight decay 0.3. The paper's "
            "model of 12 heads is 400 wide.",
        ),
        "paper": Profile(
            PAPER,
            "Paper profile: four layers, width 400, heads of width 64, 4000 epochs on 2000 sequences. The paper shows "
            "one model of 12 heads; the other numbers of heads, the rates γ and five seeds are our choice.",
        ),
    },
    smoke=replace(QUICK.shortened(steps=2), heads=(2, 3), gammas=(LARGE, SMALL)),
    chosen_on=SEARCHED,
)
