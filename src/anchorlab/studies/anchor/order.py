"""The classification anchor function: after training, the embeddings of the items lie in the order of their values.

Source: anchor functions, section 4.3, Figure 5; settings in its appendix A.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.findings import (
    Claim,
    Findings,
    LineFigure,
    Provenance,
    Scatter,
    ScatterFigure,
    Table,
    line,
    numbers,
)
from anchorlab.lens import tsne
from anchorlab.models import DecoderSpec
from anchorlab.studies.anchor.settings import paper_recipe, quick_model, quick_recipe
from anchorlab.studies.kit import along, judge_means, at_end
from anchorlab.studies.study import Profile, Study
from anchorlab.tasks import task
from anchorlab.training import Experiment, Members, Times, TrainedRun

NEIGHBOURS, NEAR = 2, 3
"""Of each item's `NEIGHBOURS` nearest embeddings, those count whose value is within `NEAR` of its own."""

_LINKED = 6  # neighbours that the graph along the curve links each item to, at least
_LEARNED = 0.9  # mean test accuracy from which on the order is judged
_SOURCE = "anchor functions, section 4.3 and Fig 5"
_JUDGED = f"judged only where the mean test accuracy is at least {_LEARNED:g}"

CLAIMS = (
    Claim(
        "anchor/order/learned",
        "The classification task is learned",
        "anchor functions, Fig 3",
        "about 1",
        "test accuracy at the end, mean over seeds",
        (_LEARNED, 1.0),
    ),
    Claim(
        "anchor/order/along-the-curve",
        "The embeddings of the items lie along a curve in the order of their values",
        _SOURCE,
        "obvious; no value in the text",
        f"rank correlation of an item's value with its place along the curve, without sign, mean over seeds; {_JUDGED}",
        (0.95, 1.0),
    ),
    Claim(
        "anchor/order/neighbours",
        "What is near in value is near in embedding",
        _SOURCE,
        "obvious; no value in the text",
        f"share of each item's {NEIGHBOURS} nearest embeddings whose value is within {NEAR} of its own, mean over "
        f"seeds; chance is 0.07; {_JUDGED}",
        (0.8, 1.0),
    ),
    Claim(
        "anchor/order/picture",
        "The t-SNE picture shows it",
        _SOURCE,
        "obvious; no value in the text",
        f"the same share among the points of the picture, mean over seeds; {_JUDGED}",
        (0.8, 1.0),
    ),
    Claim(
        "anchor/order/not-given",
        "The order is learned: untrained embeddings have none",
        _SOURCE,
        "implied: after training",
        "the share of neighbours before training, mean over seeds",
        (None, 0.15),
    ),
)


def quick_experiments(size: int = 30_000, steps: int = 6000, seeds: int = 4) -> list[Experiment]:
    """One experiment: two layers of one head, width 64, on as many sequences as the paper's; kept at start and end."""
    return [
        Experiment(
            task("anchor/classification"),
            quick_model(),
            quick_recipe(size, steps, batch=100, evaluations=20, checkpoints=1),
            Members(seeds=tuple(range(seeds))),
            "classification",
        )
    ]


def _paper_experiments() -> list[Experiment]:
    recipe = paper_recipe(30_000).replace(checkpoints=Times(at=(0,)))
    return [
        Experiment(
            task("anchor/classification"), DecoderSpec(), recipe, Members(seeds=tuple(range(5))), "classification"
        )
    ]


def distances(points: Float[Tensor, "member item width"]) -> Float[Tensor, "member item item"]:
    """Between every two points; infinite between a point and itself."""
    apart: Tensor = torch.linalg.vector_norm(points.unsqueeze(2) - points.unsqueeze(1), dim=-1)
    return apart + torch.diag(torch.full(apart.shape[-1:], torch.inf))


def near_neighbours(points: Float[Tensor, "member item width"], count: int = NEIGHBOURS, near: int = NEAR) -> Tensor:
    """Share of the items' `count` nearest points that are at most `near` places away, `[member]`; items in order."""
    nearest = distances(points).topk(count, largest=False).indices
    items = torch.arange(points.shape[1]).unsqueeze(-1)
    return ((nearest - items).abs() <= near).double().mean(dim=(1, 2))


def chance_of_near(items: int, near: int = NEAR) -> float:
    """The share of near neighbours where the points are in no order."""
    places = torch.arange(items)
    return float(((places - places.unsqueeze(-1)).abs() <= near).sum() - items) / (items * (items - 1))


def along_the_curve(points: Float[Tensor, "item width"], linked: int = _LINKED) -> Float[Tensor, "item"]:
    """A coordinate that grows along the curve on which the points lie, of either sign.

    Each point is linked to its nearest ones, `linked` of them or as many more as make one piece of all; the coordinate
    is the slowest way to vary over these links, the second eigenvector of the graph's Laplacian (Fiedler).
    """
    apart = distances(points.double().unsqueeze(0))[0]
    for count in range(linked, len(points)):
        links = torch.zeros_like(apart).scatter(1, apart.topk(count, largest=False).indices, 1.0)
        links = torch.maximum(links, links.T)
        values, vectors = torch.linalg.eigh(torch.diag(links.sum(dim=1)) - links)
        if values[1] > 1e-9:  # zero for each further piece that the graph falls into
            break
    slowest: Tensor = vectors[:, 1]
    return slowest


def ranks(values: Float[Tensor, "member item"]) -> Float[Tensor, "member item"]:
    """The place of each value among all, from 0; values that are equal but for rounding share the mean of theirs."""
    rounded = values.double().round(decimals=9)
    mine, others = rounded.unsqueeze(-1), rounded.unsqueeze(-2)
    return ((others < mine).sum(dim=-1) + (others <= mine).sum(dim=-1) - 1) / 2.0


def places(points: Float[Tensor, "member item width"]) -> Float[Tensor, "member item"]:
    """The items' places along the curve, from 0 to 1, counted from the end at which the small items lie."""
    found = ranks(torch.stack([along_the_curve(one) for one in points])).double() / (points.shape[1] - 1)
    return torch.where(_correlation(found).unsqueeze(-1) < 0, 1 - found, found)


def _correlation(found: Float[Tensor, "member item"]) -> Float[Tensor, "member"]:
    """Of ranks with the items' own order."""
    both = torch.stack([found, torch.arange(found.shape[1], dtype=found.dtype).expand_as(found)])
    centred = both - both.mean(dim=-1, keepdim=True)
    lengths: Tensor = torch.linalg.vector_norm(centred, dim=-1)
    return (centred[0] * centred[1]).sum(dim=-1) / lengths.prod(dim=0)


def picture(points: Float[Tensor, "member item width"]) -> Float[Tensor, "member item 2"]:
    """t-SNE of each member's points on a plane, from their two main components."""
    return tsne(points).coordinates


@dataclass(frozen=True)
class Order:
    """What the embeddings of one moment say: `places` along the curve `[member item]`, the others `[member]`."""

    places: Tensor
    order: Tensor
    neighbours: Tensor

    @classmethod
    def of(cls, embeddings: Float[Tensor, "member item width"]) -> "Order":
        """Measured on the embeddings of the items in the order of their values."""
        found = places(embeddings)
        return cls(found, _correlation(found), near_neighbours(embeddings))


def analyse(runs: Sequence[TrainedRun], provenance: Provenance, note: str) -> Findings:
    """The picture of Figure 5, and numbers for the order in it."""
    (run,) = runs
    first, last = run.experiment.task.vocabulary.items  # type: ignore[attr-defined]
    items = range(first, last + 1)
    at_start, at_end = (
        run.ensemble(step).weights["embed.W_E"][:, first : last + 1]
        for step in (run.checkpoints[0], run.checkpoints[-1])
    )
    before, after, plane = Order.of(at_start), Order.of(at_end), picture(at_end)
    accuracy = at_end(run, "test", "accuracy")
    learned = float(accuracy.mean()) >= _LEARNED
    shown = near_neighbours(plane)
    measured: dict[str, Tensor | None] = {
        "learned": accuracy,
        "along-the-curve": after.order if learned else None,
        "neighbours": after.neighbours if learned else None,
        "picture": shown if learned else None,
        "not-given": before.neighbours,
    }
    return Findings(
        study=STUDY.name,
        title=STUDY.title,
        summary="Of four items with an anchor each, the one nearest to a fifth item is sought; the answer is its "
        f"anchor. Nothing in a token's number tells the model which items are near. {note}",
        profile=provenance.profile,
        provenance=provenance,
        claims=judge_means(CLAIMS, measured, provenance.profile),
        figures=(
            _picture_figure(items, picture(at_start[:1])[0], plane[0]),
            _place_figure(items, before, after),
            _learning_figure(run),
        ),
        tables=(_table(run, accuracy, before, after, shown),),
    )


def _picture_figure(items: Sequence[int], before: Tensor, after: Tensor) -> ScatterFigure:
    return ScatterFigure(
        title="Embeddings of the items (Fig 5)",
        caption="t-SNE of the token embeddings of the first seed, coloured by the item's value. The axes of t-SNE have "
        "no unit and no direction; only what is near means something.",
        scatters=tuple(
            Scatter(name, numbers(plane[:, 0]), numbers(plane[:, 1]), numbers(items))
            for name, plane in (("before training", before), ("after training", after))
        ),
        x_label="t-SNE, first axis",
        y_label="t-SNE, second axis",
        value_label="item",
    )


def _place_figure(items: Sequence[int], before: Order, after: Order) -> LineFigure:
    return LineFigure(
        title="Place along the curve of embeddings against value",
        caption="Place in the order of a coordinate along the curve, measured on the embeddings themselves. Mean over "
        "seeds; the band reaches from the lowest to the highest. Where the embeddings are ordered by value, this is "
        "the diagonal.",
        x_label="item",
        y_label="place along the curve",
        lines=(line("after training", items, after.places), line("before", items, before.places)),
        y_range=(0.0, 1.0),
    )


def _learning_figure(run: TrainedRun) -> LineFigure:
    lines = []
    for split in ("train", "test"):
        steps, values = along(run, split, "accuracy")
        lines.append(line(split, [step / run.experiment.steps_per_unit for step in steps], values))
    return LineFigure(
        title="Accuracy along training",
        caption="Mean over seeds; the band reaches from the lowest to the highest. A quarter is what naming any of the "
        "four anchors gives.",
        x_label=run.experiment.recipe.unit,
        y_label="accuracy",
        lines=tuple(lines),
        y_range=(0.0, 1.02),
    )


def _table(run: TrainedRun, accuracy: Tensor, before: Order, after: Order, shown: Tensor) -> Table:
    columns = (accuracy, after.order, before.order, after.neighbours, before.neighbours, shown)
    return Table(
        title="Order of the embeddings, seed by seed",
        caption=f"Order: rank correlation of value and place along the curve. Neighbours: share of the {NEIGHBOURS} "
        f"nearest within {NEAR} in value; {chance_of_near(after.places.shape[1]):.3f} by chance.",
        columns=(
            "seed",
            "test accuracy",
            "order",
            "order, untrained",
            "neighbours",
            "neighbours, untrained",
            "neighbours in the picture",
        ),
        rows=tuple(
            (seed, *(float(values[index]) for values in columns))
            for index, seed in enumerate(run.experiment.members.seeds)
        ),
    )


STUDY = Study(
    name="anchor/order",
    title="The classification anchor function: embeddings in the order of their values",
    claims=CLAIMS,
    profiles={
        "quick": Profile(
            quick_experiments,
            "Quick profile: two layers of one head, width 64 (0.1 M parameters), the paper's 30000 sequences, 6000 "
            "steps of batch 100 (20 epochs) with learning rate 6e-3 and weight decay 0.3. The paper trains four layers "
            "of four heads, width 400 (5.65 M parameters), for 4000 epochs of batch 50 at up to 2e-4.",
        ),
        "paper": Profile(
            _paper_experiments,
            "Paper profile: the setting of section 4.3 and appendix A. The paper names no seeds (five here), no "
            "setting of t-SNE and no weight decay (PyTorch's 0.01).",
        ),
        "smoke": Profile(
            lambda: quick_experiments(size=200, steps=20, seeds=2),
            "Smoke profile: it only exercises the code.",
        ),
    },
    analyse=analyse,
)
