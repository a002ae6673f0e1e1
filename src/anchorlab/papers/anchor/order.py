"""The classification anchor function: embeddings in the order of their values.

Each of four items has an anchor; the answer is the anchor of the item nearest to a fifth one. Token numbers do not tell
the model which items are near.

Source: anchor functions, section 4.3 and Figure 5; settings in its appendix A.
"""

from dataclasses import dataclass, replace
from importlib.util import find_spec

import torch
from jaxtyping import Float
from scipy.stats import rankdata
from torch import Tensor

from anchorlab.findings import Scatter, ScatterFigure, at_least, at_most, numbers
from anchorlab.lens import tsne
from anchorlab.models import DecoderSpec
from anchorlab.papers.anchor.settings import ITEMS, Setting, only, paper_recipe
from anchorlab.studies import SEARCHED, Measurement, Profile, Reading, Study, claim, measures_in, precondition, reading
from anchorlab.studies.draws import by_seed, split_curves
from anchorlab.studies.kit import MEAN_AND_RANGE, curves_against
from anchorlab.studies.quick import quick_model, quick_recipe
from anchorlab.studies.readings import first_at_end
from anchorlab.training import Times, TrainedRun

NEIGHBOURS, NEAR = 2, 3  # nearest embeddings compared for each item; the largest difference in value that is near
LINKED = 6  # the least number of neighbours that the graph along the curve links each item to
LEARNED = 0.9  # mean test accuracy from which the order is judged
NO_PICTURE = "scikit-learn, which draws the picture, is not installed; run pip install 'anchorlab[tsne]'"


@dataclass(frozen=True)
class Pictured(Setting):
    """A setting with the number of t-SNE iterations for the picture of Figure 5."""

    iterations: int = 1000


QUICK = Pictured(quick_model(), quick_recipe(30_000, steps=6000, batch=100, evaluations=20, checkpoints=1), seeds=14)
PAPER = Pictured(DecoderSpec(), paper_recipe(30_000).replace(checkpoints=Times(at=(0,))), seeds=5)


experiments = only("classification", "anchor/classification", "classification")
"""The only experiment, which saves its weights at the start and the end."""


@dataclass(frozen=True)
class Order:
    """Measures of how the items' embeddings reflect their order."""

    embeddings: Float[Tensor, "member item width"]  # in the order of the items' values
    places: Float[Tensor, "member item"]  # along the curve, from 0 to 1
    order: Float[Tensor, "member"]  # rank correlation of value and place along the curve
    neighbours: Float[Tensor, "member"]  # share of the nearest embeddings that are near in value

    @classmethod
    def of(cls, embeddings: Float[Tensor, "member item width"]) -> "Order":
        """Measure the order of the items' embeddings."""
        found = places(embeddings)
        return cls(embeddings, found, _correlation(found), near_neighbours(embeddings))


def _order(run: TrainedRun, step: int) -> Order:
    return Order.of(run.ensemble(step).weights["embed.W_E"][:, ITEMS.start : ITEMS.stop])


class Seen(Reading):
    """The order of the embeddings before and after training."""

    accuracy = first_at_end("test", "accuracy")
    before = reading(lambda seen: _order(seen.first, step=seen.first.checkpoints[0]))
    after = reading(lambda seen: _order(seen.first, step=seen.first.checkpoints[-1]))
    learned = reading(lambda seen: float(seen.accuracy.mean()) >= LEARNED)  # whether the seeds learned in the mean

    @reading
    def picture(self) -> Float[Tensor, "member item 2"] | None:
        """The t-SNE picture of the embeddings after training; None without the extra `tsne`."""
        if not find_spec("sklearn"):
            return None
        return tsne(self.after.embeddings, iterations=self.setting.iterations).coordinates


def distances(points: Float[Tensor, "member item width"]) -> Float[Tensor, "member item item"]:
    """Return the distance between every two points; infinite between a point and itself."""
    apart: Tensor = torch.linalg.vector_norm(points.unsqueeze(2) - points.unsqueeze(1), dim=-1)
    return apart + torch.diag(torch.full(apart.shape[-1:], torch.inf))


def near_neighbours(
    points: Float[Tensor, "member item width"], count: int = NEIGHBOURS, near: int = NEAR
) -> Float[Tensor, "member"]:
    """Return the share of each item's `count` nearest points whose item is at most `near` values away."""
    nearest = distances(points).topk(count, largest=False).indices
    items = torch.arange(points.shape[1]).unsqueeze(-1)
    return ((nearest - items).abs() <= near).double().mean(dim=(1, 2))


def chance_of_near(items: int, near: int = NEAR) -> float:
    """Return the expected share of near neighbours for points in random order."""
    places = torch.arange(items)
    return float(((places - places.unsqueeze(-1)).abs() <= near).sum() - items) / (items * (items - 1))


def curve_coordinate(points: Float[Tensor, "item width"], linked: int = LINKED) -> Float[Tensor, "item"]:
    """Return a coordinate that grows along the curve on which the points lie; its sign is arbitrary.

    Each point is linked to its `linked` nearest, or to more if the graph would otherwise not be connected. The
    coordinate is the second eigenvector of the graph's Laplacian (Fiedler), which varies least along the links.
    """
    apart = distances(points.double().unsqueeze(0))[0]
    for count in range(linked, len(points)):
        links = torch.zeros_like(apart).scatter(1, apart.topk(count, largest=False).indices, 1.0)
        links = torch.maximum(links, links.T)
        values, vectors = torch.linalg.eigh(torch.diag(links.sum(dim=1)) - links)
        if values[1] > 1e-9:  # zero if the graph is not connected
            break
    slowest: Tensor = vectors[:, 1]
    return slowest


def ranks(values: Float[Tensor, "member item"]) -> Float[Tensor, "member item"]:
    """Return each value's rank, from 0; values equal up to rounding share their mean rank."""
    return torch.from_numpy(rankdata(values.double().round(decimals=9).numpy(), axis=-1)) - 1


def places(points: Float[Tensor, "member item width"]) -> Float[Tensor, "member item"]:
    """Return the items' places along the curve, from 0 at the end of the small items to 1."""
    found = ranks(torch.stack([curve_coordinate(one) for one in points])) / (points.shape[1] - 1)
    return torch.where(_correlation(found).unsqueeze(-1) < 0, 1 - found, found)


def _correlation(found: Float[Tensor, "member item"]) -> Float[Tensor, "member"]:
    both = torch.stack([found, torch.arange(found.shape[1], dtype=found.dtype).expand_as(found)])
    centred = both - both.mean(dim=-1, keepdim=True)
    lengths: Tensor = torch.linalg.vector_norm(centred, dim=-1)
    return (centred[0] * centred[1]).sum(dim=-1) / lengths.prod(dim=0)


_JUDGED = f"judged only where the mean test accuracy is at least {LEARNED:g}"


@precondition("Fig 3", "about 1", at_least(LEARNED), of=("along-the-curve", "neighbours", "picture"))
def learned(seen: Seen) -> Float[Tensor, "seed"]:
    """The classification task is learned.

    Test accuracy at the end, mean over seeds.
    """
    return seen.accuracy


@claim("section 4.3 and Fig 5", "obvious; no value in the text", at_least(0.95))
def along_the_curve(seen: Seen) -> Float[Tensor, "seed"] | None:
    """The embeddings of the items lie along a curve in the order of their values.

    Absolute rank correlation of an item's value with its place along the curve, mean over seeds; {_JUDGED}.
    """
    return seen.after.order if seen.learned else None


@claim("section 4.3 and Fig 5", "obvious; no value in the text", at_least(0.8))
def neighbours(seen: Seen) -> Float[Tensor, "seed"] | None:
    """What is near in value is near in embedding.

    Share of each item's {NEIGHBOURS} nearest embeddings whose value is within {NEAR} of its own, mean over seeds;
    chance is 0.07; {_JUDGED}.
    """
    return seen.after.neighbours if seen.learned else None


@claim("section 4.3 and Fig 5", "obvious; no value in the text", at_least(0.8))
def picture(seen: Seen) -> Float[Tensor, "seed"] | Measurement | None:
    """The t-SNE picture shows the order of the items.

    Share of each item's {NEIGHBOURS} nearest points in the picture whose value is within {NEAR} of its own, mean over
    seeds; {_JUDGED}.
    """
    if seen.picture is None:
        return Measurement(None, detail=NO_PICTURE)
    return near_neighbours(seen.picture) if seen.learned else None


@claim("section 4.3 and Fig 5", "implied: after training", at_most(0.15), own=True)
def not_given(seen: Seen) -> Float[Tensor, "seed"]:
    """The order is learned: untrained embeddings have none.

    Share of each item's {NEIGHBOURS} nearest embeddings before training whose value is within {NEAR} of its own, mean
    over seeds.
    """
    return seen.before.neighbours


def _picture(seen: Seen) -> ScatterFigure | None:
    if seen.picture is None:
        return None
    before = tsne(seen.before.embeddings[:1], iterations=seen.setting.iterations).coordinates
    planes, seed = {"before training": before, "after training": seen.picture}, seen.first.experiment.members.seeds[0]
    return ScatterFigure(
        title="Embeddings of the items (Fig 5)",
        caption=f"t-SNE of the token embeddings of seed {seed}, coloured by the item's value. The axes of t-SNE have "
        "no unit and no direction; only what is near means something.",
        scatters=tuple(
            Scatter(name, numbers(points[0, :, 0]), numbers(points[0, :, 1]), numbers(ITEMS))
            for name, points in planes.items()
        ),
        x_label="t-SNE, first axis",
        y_label="t-SNE, second axis",
        value_label="item",
        seeds=str(seed),
    )


STUDY = Study(
    "anchor/order",
    __doc__,
    measures_in(__name__),
    trains=experiments,
    reads=Seen,
    draws=(
        _picture,
        lambda seen: curves_against(
            "Place along the curve of embeddings against value",
            ITEMS,
            {"after training": seen.after.places, "before": seen.before.places},
            x_label="item",
            y_label="place along the curve",
            caption="Place: the rank, from 0 to 1, of a coordinate along the curve of the embeddings themselves. "
            f"{MEAN_AND_RANGE} Where the embeddings are ordered by value, this is the diagonal."
            + ("" if seen.picture is not None else f" The t-SNE picture of Fig 5 is left out: {NO_PICTURE}."),
            y_range=(0.0, 1.0),
        ),
        split_curves(
            "Accuracy along training",
            {"train": "train", "test": "test"},
            caption=f"{MEAN_AND_RANGE} Naming one of the four anchors at random gives a quarter.",
        ),
        by_seed(
            "Order of the embeddings, seed by seed",
            f"Order: rank correlation of value and place along the curve. Neighbours: share of the {NEIGHBOURS} "
            f"nearest within {NEAR} in value; {chance_of_near(len(ITEMS)):.3f} by chance.",
            lambda seen: (
                {
                    "test accuracy": seen.accuracy,
                    "order": seen.after.order,
                    "order, untrained": seen.before.order,
                    "neighbours": seen.after.neighbours,
                    "neighbours, untrained": seen.before.neighbours,
                }
                | ({} if seen.picture is None else {"neighbours in the picture": near_neighbours(seen.picture)})
            ),
        ),
    ),
    profiles={
        "quick": Profile(QUICK),
        "paper": Profile(
            PAPER,
            "The setting of section 4.3 and appendix A. Batches of 50, as section 4.3 says of this task; appendix A "
            "says 100 of all. The paper names no seeds, no setting of t-SNE and no weight decay (PyTorch's).",
            paper=True,
        ),
    },
    smoke=replace(QUICK.shortened(steps=4, size=200), iterations=251),
    chosen_on=SEARCHED,
)
