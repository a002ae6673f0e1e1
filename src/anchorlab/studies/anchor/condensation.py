"""Condensation: heads of one layer are alike, and neurons the more so the smaller the weights begin.

Source: anchor functions, section 6.2, Figure 19.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from anchorlab.findings import Claim, Findings, LineFigure, Map, MapFigure, Provenance, Table, grid, line
from anchorlab.lens import broadcast_profile, condensation, head_similarity, look
from anchorlab.models import DecoderSpec
from anchorlab.studies.anchor.settings import paper_recipe, quick_model, quick_recipe
from anchorlab.studies.kit import judge_means, at_end
from anchorlab.studies.study import Profile, Study
from anchorlab.tasks import task
from anchorlab.training import Experiment, Members, Recipe, Times, TrainedRun

MANY, LARGE, SMALL = 12, 0.5, 0.8
"""The paper's number of heads; the rates γ of a large and of a small initialisation, N(0, inputs^-2γ)."""

LEARNED = 0.9
"""A member is judged once its test accuracy is at least this."""

_LOOKED_AT = 200
_LAYER = 1  # the second, as in Figure 19
_PATTERNS = f"blocks.{_LAYER}.attn.hook_pattern"
_NEURONS = f"blocks.{_LAYER}.mlp.W_in"
_SOURCE = "anchor functions, section 6.2 and Fig 19"
_LEARNERS = f"mean over members with a test accuracy of at least {LEARNED:g}"

CLAIMS = (
    Claim(
        "anchor/condensation/learned",
        f"A model of four layers with {MANY} heads each learns the task",
        _SOURCE,
        "implied: maps are of a trained model",
        f"test accuracy at γ = {LARGE:g} and {SMALL:g}, mean over both and seeds",
        (0.95, 1.0),
    ),
    Claim(
        "anchor/condensation/heads-alike",
        "The heads of its second layer are alike",
        _SOURCE,
        "highly similar",
        f"cosine similarity of the maps of two heads at γ = {LARGE:g} and {SMALL:g}, mean over pairs and inputs, "
        f"{_LEARNERS}",
        (0.8, 1.0),
    ),
    Claim(
        "anchor/condensation/all-broadcast",
        "They all broadcast from the same place",
        _SOURCE,
        "all perform the broadcast operation",
        "share of heads from whose best source, counted from the anchor, the last position reads that are of the "
        f"member's most common one and put at least half of their attention there; {_LEARNERS}",
        (0.8, 1.0),
    ),
    Claim(
        "anchor/condensation/neurons-with-gamma",
        "The smaller the initialisation, the more the neurons of a layer are condensed",
        "anchor functions, section 6.2",
        "more condensed",
        f"condensation number of the second layer's neurons at γ = {SMALL:g} minus that at γ = {LARGE:g}, {MANY} "
        "heads, difference of means",
        (0.05, None),
    ),
    Claim(
        "anchor/condensation/heads-with-gamma",
        "So are its heads: the smaller the initialisation, the more they are alike",
        "anchor functions, section 6.2 (expected of heads from neurons)",
        "expected; no value in the text",
        f"similarity of heads at γ = {SMALL:g} minus that at γ = {LARGE:g}, {MANY} heads, difference of means",
        (0.0, None),
    ),
)


def _experiments(
    heads: Sequence[int], gammas: Sequence[float], seeds: int, model: DecoderSpec, recipe: Recipe
) -> list[Experiment]:
    members = Members(
        seeds=tuple(range(seeds)) * len(gammas), gamma={"all": tuple(gamma for gamma in gammas for _ in range(seeds))}
    )
    return [
        Experiment(
            task("anchor/identity"),
            model.replace(heads=count, initialisation="normal"),
            recipe.replace(checkpoints=Times(at=(0,))),
            members,
            f"identity, four layers of {count} heads",
        )
        for count in heads
    ]


def quick_experiments(
    heads: Sequence[int] = (2, 4, MANY),
    gammas: Sequence[float] = (LARGE, 0.65, SMALL),
    seeds: int = 5,
    steps: int = 600,
) -> list[Experiment]:
    """Four layers, width 64, heads of width 16, 2000 sequences."""
    model = quick_model(layers=4).replace(head_width=16)
    return _experiments(heads, gammas, seeds, model, quick_recipe(2000, steps, learning_rate=2e-3))


@dataclass(frozen=True)
class Layer:
    """The second layer under one number of heads; all but `heads` and `gammas` are `[gamma seed]`."""

    heads: int
    gammas: tuple[float, ...]
    accuracy: Tensor
    alike: Tensor
    alike_untrained: Tensor
    broadcasting: Tensor
    neurons: Tensor
    neurons_untrained: Tensor

    def at(self, values: Tensor, gamma: float) -> Tensor:
        """The values at one γ of the seeds that learned, `[seed]`."""
        index = self.gammas.index(gamma)
        return values[index][self.accuracy[index] >= LEARNED]


def read_layer(run: TrainedRun) -> Layer:
    """What the second layer of one run's members has become."""
    given = run.experiment.members.gamma.given["all"]
    gammas = tuple(dict.fromkeys(given))
    batch = run.experiment.task.sample("test", _LOOKED_AT, seed=0)
    before, after = (look(run.ensemble(step), batch.inputs, record=[_PATTERNS])[_PATTERNS] for step in (0, None))
    anchors = batch.latents["anchor_positions"][:, 0]

    def arranged(values: Tensor) -> Tensor:
        return values.view(len(gammas), -1)

    return Layer(
        int(after.shape[2]),
        gammas,
        arranged(at_end(run, "test", "accuracy")),
        arranged(head_similarity(after)),
        arranged(head_similarity(before)),
        arranged(share_broadcasting(after, anchors)),
        *(arranged(condensation(run.ensemble(step).weights[_NEURONS])) for step in (None, 0)),
    )


def share_broadcasting(pattern: Tensor, anchors: Tensor) -> Tensor:
    """The share of a layer's heads that do the layer's most common broadcast, `[member]`.

    A head's source is where, counted from the anchor, the last position reads most, at least half of its attention.
    Takes a pattern `[member batch head query key]` and the anchors' positions `[batch]`.
    """
    sources = broadcast_profile(pattern, anchors, queries="last")
    common = sources.best.mode(dim=-1, keepdim=True).values
    return ((sources.best == common) & (sources.value >= 0.5)).float().mean(dim=-1)


def analyse(runs: Sequence[TrainedRun], provenance: Provenance, note: str) -> Findings:
    """How alike heads and neurons are, over the number of heads and the initialisation."""
    layers = {layer.heads: layer for layer in map(read_layer, runs)}
    return Findings(
        study=STUDY.name,
        title=STUDY.title,
        summary="Models of four layers on the identity task, whose weights begin as N(0, inputs^-2γ). How alike are "
        f"the heads of the second layer, and the neurons of its feed-forward network? {note}",
        profile=provenance.profile,
        provenance=provenance,
        claims=judge_means(
            CLAIMS,
            dict(_measured(layers)),
            provenance.profile,
            {"learned": "members", **dict.fromkeys(("heads-alike", "all-broadcast"), "members that learned")},
        ),
        figures=(_map_figure(runs[-1]), _figure(layers, "heads"), _figure(layers, "neurons")),
        tables=(_table(layers),),
    )


def _measured(layers: Mapping[int, Layer]) -> Iterator[tuple[str, Tensor | None]]:
    many = layers.get(MANY)
    if many is None or not {LARGE, SMALL} <= set(many.gammas):
        yield from ((claim.id.rpartition("/")[2], None) for claim in CLAIMS)
        return

    def both(values: Tensor) -> Tensor | None:
        found = torch.cat([many.at(values, gamma) for gamma in (LARGE, SMALL)])
        return found if len(found) else None

    def rise(values: Tensor) -> Tensor | None:
        small, large = many.at(values, SMALL), many.at(values, LARGE)
        return (small.mean() - large.mean()).reshape(1) if len(small) and len(large) else None

    yield "learned", many.accuracy[[many.gammas.index(gamma) for gamma in (LARGE, SMALL)]].flatten()
    yield "heads-alike", both(many.alike)
    yield "all-broadcast", both(many.broadcasting)
    yield "neurons-with-gamma", rise(many.neurons)
    yield "heads-with-gamma", rise(many.alike)


def _map_figure(run: TrainedRun) -> MapFigure:
    """Figure 19: the maps of all heads of the second layer on one sequence, of the member whose heads are typical."""
    accuracy = at_end(run, "test", "accuracy")
    batch = run.experiment.task.sample("test", _LOOKED_AT, seed=0)
    patterns = look(run.ensemble(), batch.inputs, record=[_PATTERNS])[_PATTERNS]
    member = typical(head_similarity(patterns), accuracy >= LEARNED)
    middle = int((batch.latents["anchor_positions"][:, 0] == 4).nonzero()[0])
    ticks = tuple(token.text for token in run.experiment.task.render(batch.inputs[middle : middle + 1])[0].tokens)
    maps = [Map(f"head {head}", grid(values), ticks, ticks) for head, values in enumerate(patterns[member, middle])]
    gamma = run.experiment.members.gamma.given["all"][member]
    return MapFigure(
        title="The heads of the second layer (Fig 19)",
        caption=f"Seed {run.experiment.members.seeds[member]} at γ = {gamma:g}, with a test accuracy of "
        f"{float(accuracy[member]):.3g}, on one test sequence: of the members that learned, the one with the median "
        "similarity of heads. In the paper all twelve are alike: they broadcast.",
        maps=tuple(tuple(maps[start : start + 4]) for start in range(0, len(maps), 4)),
        value_range=(0.0, 1.0),
    )


def typical(values: Tensor, among: Tensor) -> int:
    """The member `[member]` that has the median value of those in question, or of all where there is none."""
    asked = among if bool(among.any()) else torch.ones_like(among)
    return int((values - values[asked].median()).abs().where(asked, torch.inf).argmin())


def _figure(layers: Mapping[int, Layer], of: str) -> LineFigure:
    heads = of == "heads"
    what = "cosine similarity of two heads" if heads else "condensation number"
    return LineFigure(
        title=f"How alike the {of} of the second layer are, by initialisation",
        caption="Mean over seeds, learned or not; the band reaches from the lowest to the highest. A larger γ is a "
        "smaller initialisation. "
        + ("Heads: cosine of two heads' maps." if heads else "Neurons: absolute cosine of two neurons' input weights."),
        x_label="initialisation rate γ",
        y_label=what,
        lines=tuple(
            line(f"{count} heads", layer.gammas, (layer.alike if heads else layer.neurons).T)
            for count, layer in sorted(layers.items())
        ),
        y_range=(0.0, 1.02),
    )


def _table(layers: Mapping[int, Layer]) -> Table:
    rows = []
    for count, layer in sorted(layers.items()):
        for index, gamma in enumerate(layer.gammas):
            values = (
                layer.accuracy, layer.alike, layer.alike_untrained, layer.broadcasting, layer.neurons,
                layer.neurons_untrained,
            )  # fmt: skip
            rows.append((count, gamma, *(float(value[index].mean()) for value in values)))
    return Table(
        title="The second layer by number of heads and initialisation",
        caption="Means over seeds. Untrained heads attend nearly everywhere alike, and so are alike themselves.",
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
    title="Condensation: heads of one layer are alike",
    claims=CLAIMS,
    profiles={
        "quick": Profile(
            quick_experiments,
            "Quick profile: four layers of 2, 4 and 12 heads of width 16, stream 64 wide, three rates γ, five seeds "
            "each; 2000 sequences, 600 steps of batch 50 with learning rate 2e-3 and weight decay 0.3. The paper's "
            "model of 12 heads is 400 wide.",
        ),
        "paper": Profile(
            lambda: _experiments((2, 4, 8, MANY), (0.3, LARGE, 0.65, SMALL), 5, DecoderSpec(), paper_recipe(2000)),
            "Paper profile: four layers, width 400, heads of width 64, 4000 epochs on 2000 sequences. The paper shows "
            "one model of 12 heads; the other numbers of heads, the rates γ and five seeds are our choice.",
        ),
        "smoke": Profile(
            lambda: quick_experiments(heads=(2, 3), gammas=(LARGE, SMALL), seeds=2, steps=2),
            "Smoke profile: two steps, for tests.",
        ),
    },
    analyse=analyse,
)
