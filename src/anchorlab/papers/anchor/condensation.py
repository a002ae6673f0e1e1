"""Condensation: heads of one layer are alike.

Models of four layers on the identity task. How alike are the heads of layer 1 at the paper's own initialisation? Do
they, and the neurons of the feed-forward network, become more so where weights begin smaller, as N(0, d^-2γ)?

Source: anchor functions, section 6.2, Figure 19.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from anchorlab.findings import LineFigure, MapFigure, Table, at_least
from anchorlab.lens import broadcast_profile, condensation, head_similarity, look
from anchorlab.models import DecoderSpec
from anchorlab.papers.anchor.settings import BATCH_NOTE, Setting, at_every_gamma, paper_recipe
from anchorlab.studies import SEARCHED, Profile, Reading, Study, mean_of_known, over_shared, quick_model, quick_recipe
from anchorlab.studies.claim import Measurement, claim, measures_in, over, precondition
from anchorlab.studies.kit import ACCURACY, at_end, attention_maps, curves_against, example
from anchorlab.studies.readings import Quantity
from anchorlab.tasks import task
from anchorlab.training import Experiment, Times, TrainedRun

MANY, LARGE, SMALL = 12, 0.5, 0.8
"""The paper's number of heads; the rates γ of a large and of a small initialisation, N(0, d^-2γ)."""

PAPERS = None
"""The start of the paper's own model, in place of a rate γ: PyTorch's defaults.

Section 6.2 names no initialisation for its Figure 19, "the attention map of each head in the second layer of a 4-layer
12-head model", nor does appendix A: "The optimizer chosen is AdamW. The batch size is set to 100. The initial learning
rate is 2e-5." The authors' public code leaves the weights as PyTorch draws them.
"""

LEARNED = 0.9  # a member is judged if its test accuracy is at least this
FIG_19 = "section 6.2 and Fig 19"
LOOKED_AT = 200  # test sequences over which maps are averaged
PATTERNS, NEURONS = "blocks.1.attn.hook_pattern", "blocks.1.mlp.W_in"  # Figure 19 shows the second layer


@dataclass(frozen=True)
class Grid(Setting):
    """A setting trained with the paper's heads and initialisation, and with each of `heads` at each rate γ."""

    heads: tuple[int, ...]
    gammas: tuple[float, ...]


QUICK = Grid(
    quick_model(layers=4).replace(head_width=16),
    quick_recipe(2000, learning_rate=2e-3),
    seeds=14,
    heads=(2, 4, MANY),
    gammas=(LARGE, 0.65, SMALL),
)
PAPER = Grid(DecoderSpec(), paper_recipe(2000), seeds=5, heads=(2, 4, 8, MANY), gammas=(0.3, LARGE, 0.65, SMALL))


def experiments(setting: Grid) -> dict[int | None, Experiment]:
    """Return the experiment at the paper's initialisation, then one per number of heads with members by γ and seed."""
    setting = replace(setting, recipe=setting.recipe.replace(checkpoints=Times(at=(0,))))
    papers = replace(setting, model=setting.model.replace(heads=MANY))
    identity, label = task("anchor/identity"), "identity, four layers of {} heads"
    members = at_every_gamma(setting.gammas, setting.seeds)
    own = papers.experiment(identity, f"{label.format(MANY)}, PyTorch's initialisation")
    found: dict[int | None, Experiment] = {PAPERS: own}
    for count in setting.heads:
        model = setting.model.replace(heads=count, initialisation="gamma")
        found[count] = Experiment(identity, model, setting.recipe, members, label.format(count))
    return found


@dataclass(frozen=True)
class Layer:
    """Layer 1 of models with equally many heads; a start is a rate γ, or `PAPERS` for the paper's initialisation."""

    starts: tuple[float | None, ...]
    accuracy: Float[Tensor, "start seed"]  # test accuracy at the end
    alike: Float[Tensor, "start seed"]  # cosine of two heads' maps after subtracting even attention
    alike_untrained: Float[Tensor, "start seed"]
    broadcasting: Float[Tensor, "start seed"]  # share of heads that broadcast from the most common source
    neurons: Float[Tensor, "start seed"]  # condensation number
    neurons_untrained: Float[Tensor, "start seed"]

    def of_learned(self, values: Float[Tensor, "start seed"], *starts: float | None) -> Float[Tensor, "chosen seed"]:
        """Return the values at the given starts, in their order; NaN for members that did not learn."""
        chosen = [self.starts.index(start) for start in starts]
        return values[chosen].where(self.accuracy[chosen] >= LEARNED, torch.nan)


def read_layer(run: TrainedRun) -> Layer:
    """Measure layer 1 of one run's members before and after training."""
    starts = tuple(dict.fromkeys(run.experiment.members.gamma.given.get("all", (PAPERS,))))
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
    return Layer(starts, *(value.view(len(starts), -1) for value in values))


class Seen(Reading):
    """Layer 1 at the paper's own initialisation, and at the rates γ for each number of heads."""

    layers = Quantity(read_layer)

    @property
    def papers(self) -> Layer:
        """The layer at the paper's initialisation."""
        return self.layers[PAPERS]

    @property
    def at_rates(self) -> dict[int, Layer]:
        """The layer at the rates γ, by the number of heads."""
        return {count: layer for count, layer in self.layers.items() if count is not PAPERS}

    @property
    def of_twelve(self) -> Layer | None:
        """The layer of the paper's number of heads, `MANY`, if it was trained at both `LARGE` and `SMALL`."""
        layer = self.at_rates.get(MANY)
        return layer if layer is not None and {LARGE, SMALL} <= set(layer.starts) else None


def beyond_even(pattern: Float[Tensor, "*lead query key"]) -> Float[Tensor, "*lead query key"]:
    """Return causal patterns minus even attention to all visible positions; untrained heads attend nearly evenly."""
    even = torch.ones(pattern.shape[-2:]).tril()
    return pattern - even / even.sum(dim=-1, keepdim=True)


def share_broadcasting(
    pattern: Float[Tensor, "member batch head query key"], anchors: Int[Tensor, "batch"]
) -> Float[Tensor, "member"]:
    """Return the share of a layer's heads that broadcast from the layer's most common source.

    A head's source is the position, counted from the anchor, to which the last position attends most; a head broadcasts
    if its source receives at least half of the attention.
    """
    sources = broadcast_profile(pattern, anchors, queries="last")
    common = sources.best.mode(dim=-1, keepdim=True).values
    return ((sources.best == common) & (sources.value >= 0.5)).float().mean(dim=-1)


def _rise(layer: Layer, values: Float[Tensor, "start seed"]) -> Measurement | None:
    """Measure the mean at the small initialisation minus the mean at the large one, over members that learned."""
    both = layer.of_learned(values, SMALL, LARGE)
    if bool(both.isnan().all(dim=1).any()):
        return None
    return over_shared(both.T, lambda rows: rows[:, 0].nanmean() - rows[:, 1].nanmean())


@precondition(FIG_19, "implied: maps are of a trained model", at_least(0.95), of=("heads-alike", "all-broadcast"))
def learned(seen: Seen) -> Float[Tensor, "seed"]:
    """A model of four layers with {MANY} heads each learns the task.

    Test accuracy at PyTorch's initialisation, mean over seeds.
    """
    return seen.papers.accuracy[0]


@precondition(
    "section 6.2", 'implied: "during the training"', at_least(0.95), of=("neurons-with-gamma", "heads-with-gamma")
)
def learned_at_rates(seen: Seen) -> Measurement | None:
    """Models of four layers with {MANY} heads each learn the task from a large and from a small initialisation.

    Test accuracy, mean over γ = {LARGE:g} and {SMALL:g} and over seeds.
    """
    layer = seen.of_twelve
    if layer is None:
        return None
    return over(layer.accuracy[[layer.starts.index(gamma) for gamma in (LARGE, SMALL)]].mean(dim=0))


@claim(FIG_19, "highly similar", at_least(0.8))
def heads_alike(seen: Seen) -> Measurement:
    """The heads of layer 1 are alike.

    Cosine similarity of two heads' maps after subtracting even attention, at PyTorch's initialisation, mean over pairs
    of heads, inputs and members with a test accuracy of at least {LEARNED:g}.
    """
    return mean_of_known(seen.papers.of_learned(seen.papers.alike, PAPERS).T)


@claim(FIG_19, "all perform the broadcast operation", at_least(0.8))
def all_broadcast(seen: Seen) -> Measurement:
    """All heads of layer 1 broadcast from the same place.

    Share of heads whose best source, counted from the anchor, is the member's most common one and gets at least half of
    the last position's attention, at PyTorch's initialisation; mean over members with a test accuracy of at least
    {LEARNED:g}.
    """
    return mean_of_known(seen.papers.of_learned(seen.papers.broadcasting, PAPERS).T)


@claim("section 6.2", "more condensed", at_least(0.05))
def neurons_with_gamma(seen: Seen) -> Measurement | None:
    """The smaller the initialisation, the more the neurons of a layer are condensed.

    Condensation number of layer 1's neurons at γ = {SMALL:g} minus that at γ = {LARGE:g}, {MANY} heads, difference of
    means.
    """
    return None if seen.of_twelve is None else _rise(seen.of_twelve, seen.of_twelve.neurons)


@claim("section 6.2 (expected of heads from neurons)", "expected; no value in the text", at_least(0.05))
def heads_with_gamma(seen: Seen) -> Measurement | None:
    """The smaller the initialisation, the more the heads of a layer are alike.

    Cosine similarity of two heads' maps after subtracting even attention, at γ = {SMALL:g} minus that at γ = {LARGE:g},
    {MANY} heads, difference of means.
    """
    return None if seen.of_twelve is None else _rise(seen.of_twelve, seen.of_twelve.alike)


def _maps(seen: Seen) -> MapFigure:
    run = seen.runs[PAPERS]
    accuracy, members = at_end(run, "test", "accuracy"), run.experiment.members
    batch = run.experiment.task.sample("test", LOOKED_AT, seed=0)
    patterns = look(run.ensemble(), batch.inputs, record=[PATTERNS])[PATTERNS]
    member = typical(head_similarity(beyond_even(patterns)), accuracy >= LEARNED)
    place, ticks = example(run.experiment.task, batch, batch.latents["anchor_positions"][:, 0] == 4)
    return attention_maps(
        "The heads of layer 1 (Fig 19)",
        {f"head {head}": values for head, values in enumerate(patterns[member, place])},
        ticks,
        caption=f"Seed {members.seeds[member]} at PyTorch's initialisation, with a test accuracy of "
        f"{float(accuracy[member]):.3g}, on one test sequence: of the members that learned, the one with the median "
        "similarity of heads. In the paper all twelve are alike: they broadcast.",
        seed=members.seeds[member],
    )


def typical(values: Float[Tensor, "member"], among: Bool[Tensor, "member"]) -> int:
    """Return the index of the member with the median value among the chosen ones, or among all if none is chosen."""
    chosen = among if bool(among.any()) else torch.ones_like(among)
    return int((values - values[chosen].median()).abs().where(chosen, torch.inf).argmin())


def _curves(of: str, seen: Seen, explanation: str) -> LineFigure:
    values = {count: layer.alike if of == "heads" else layer.neurons for count, layer in seen.at_rates.items()}
    return curves_against(
        f"How alike the {of} of layer 1 are, by initialisation",
        seen.setting.gammas,
        {f"{count} heads": value.T for count, value in values.items()},
        x_label="initialisation rate γ",
        y_label="cosine similarity of two heads" if of == "heads" else "condensation number",
        caption="Mean over seeds, learned or not; the band reaches from the lowest to the highest. A larger γ is a "
        f"smaller initialisation. {explanation}",
        y_range=ACCURACY,
    )


def _table(seen: Seen) -> Table:
    rows = []
    for count, layer in [(MANY, seen.papers), *seen.at_rates.items()]:
        heads = (layer.alike, layer.alike_untrained, layer.broadcasting)
        values = (layer.accuracy, *heads, layer.neurons, layer.neurons_untrained)
        for index, start in enumerate(layer.starts):
            rows.append((count, start or "PyTorch's", *(float(value[index].mean()) for value in values)))
    return Table(
        title="Layer 1 by number of heads and initialisation",
        caption="Means over seeds. Heads are compared after subtracting even attention; untrained heads are near it.",
        columns=(
            "heads",
            "initialisation, γ",
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
    "anchor/condensation",
    __doc__,
    measures_in(__name__),
    trains=experiments,
    reads=Seen,
    draws=(
        _maps,
        lambda seen: _curves("heads", seen, "Heads: cosine of two heads' maps after subtracting even attention."),
        lambda seen: _curves("neurons", seen, "Neurons: absolute cosine of two neurons' input weights."),
        _table,
    ),
    profiles={
        "quick": Profile(QUICK, "12 heads at PyTorch's initialisation; 2, 4 and 12 heads at every rate γ."),
        "paper": Profile(
            PAPER,
            "The paper shows one model of 12 heads and names neither its initialisation nor its number of sequences; "
            "PyTorch's initialisation, the other numbers of heads, the rates γ and five seeds are our choice. "
            f"{BATCH_NOTE}",
        ),
    },
    smoke=replace(
        QUICK.shortened(steps=2, size=100),
        model=quick_model(width=16).replace(head_width=4),
        heads=(2, MANY),
        gammas=(LARGE, SMALL),
    ),
    chosen_on=SEARCHED,
)
