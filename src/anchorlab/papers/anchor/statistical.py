"""Statistical output: the distribution of labels is learned.

The identity task with some labels changed to the key's successor: in the last of five copies of every sequence (first
kind), or in any sequence with probability 0.2 (second kind).

Source: anchor functions, section 4.8, Figure 11.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.findings import LineFigure, Reference, Table, at_least, at_most, within
from anchorlab.lens import look
from anchorlab.models import DecoderSpec
from anchorlab.papers.anchor.settings import BATCH_NOTE, Setting, paper_recipe
from anchorlab.studies import SEARCHED, Measurement, Profile, Reading, Study, claim, measures_in, over, reading
from anchorlab.studies.kit import MEAN_AND_RANGE, along_units, column_table, curves_against
from anchorlab.studies.quick import quick_model, quick_recipe
from anchorlab.tasks import task
from anchorlab.training import Experiment, TrainedRun

KINDS = ("first", "second")
CONTENT = {"seen": "train", "unseen": "test"}  # sequences drawn with keys placed as in training, and as in test
FRESH = 2000  # sequences drawn anew for each kind and content, from the stream of `_SEED`, which training never uses
_SEED = 10_000

QUICK = Setting(quick_model(), quick_recipe(9000, steps=1200, evaluations=24), seeds=6)
PAPER = Setting(DecoderSpec(), paper_recipe(9000), seeds=5)


def experiments(setting: Setting) -> dict[str, Experiment]:
    """Return one experiment for each of the two kinds of changed labels."""
    return {
        kind: setting.experiment(task("anchor/statistical", kind=kind), f"statistical, {kind} kind") for kind in KINDS
    }


@dataclass(frozen=True)
class Scores:
    """Scores of the final models on newly drawn sequences of one kind and content; means over sequences."""

    right: Float[Tensor, "member"]  # share of sequences whose most probable token is the label
    unchanged: Float[Tensor, "member"]  # the same over sequences labelled x
    changed: Float[Tensor, "member"]  # the same over sequences labelled x + 1
    x: Float[Tensor, "member"]  # probability of x
    successor: Float[Tensor, "member"]  # probability of x + 1
    distance: Float[Tensor, "member"]  # total variation distance to the distribution of labels


class Seen(Reading):
    """How the final models score on newly drawn sequences."""

    @reading
    def scores(self) -> dict[tuple[str, str], Scores]:
        """The scores by kind and content."""
        return {
            (kind, content): scores(run, split) for kind, run in self.runs.items() for content, split in CONTENT.items()
        }


def scores(run: TrainedRun, split: str) -> Scores:
    """Score the final models on newly drawn sequences of a split."""
    chosen = run.experiment.task
    batch = chosen.sample(split, FRESH, seed=_SEED)
    outputs = look(run.ensemble(), batch.inputs)["output"][:, :, -1:]
    metrics = [chosen.metrics(output, batch) for output in outputs]
    found = {name: torch.stack([one[name][:, 0] for one in metrics]) for name in metrics[0]}
    right, changed = found["label accuracy"], (batch.targets != batch.answers)[:, 0]
    return Scores(
        right=right.mean(dim=1),
        unchanged=(right * ~changed).sum(dim=1) / (~changed).sum(),
        changed=(right * changed).sum(dim=1) / changed.sum(),
        x=found["probability of answer"].mean(dim=1),
        successor=found["probability of changed"].mean(dim=1),
        distance=found["total variation"].mean(dim=1),
    )


def _mean(values: Iterable[Tensor]) -> Measurement:
    return over(torch.stack(list(values)).mean(dim=0))


@claim("section 4.8 and Fig 11a, b", "80 %", within(0.78, 0.82))
def all_labels(seen: Seen) -> Measurement:
    """Against labels that are x four times in five, the most probable token is right four times in five.

    Accuracy against labels on newly drawn sequences, mean over both kinds, seen and unseen content, and seeds.
    """
    return _mean(one.right for one in seen.scores.values())


@claim("section 4.8 and Fig 11a, b", "100 %", at_least(0.97))
def unchanged(seen: Seen) -> Measurement:
    """For sequences labelled x the most probable token is always right.

    Accuracy on newly drawn sequences labelled x, mean over both kinds, seen and unseen content, and seeds.
    """
    return _mean(one.unchanged for one in seen.scores.values())


@claim("section 4.8 and Fig 11a, b", "0 %", at_most(0.03))
def changed(seen: Seen) -> Measurement:
    """For sequences labelled x + 1 the most probable token is never right.

    Accuracy on newly drawn sequences labelled x + 1, mean over both kinds, seen and unseen content, and seeds.
    """
    return _mean(one.changed for one in seen.scores.values())


@claim("Fig 11c", "0.8 on seen and on unseen content", within(0.75, 0.85))
def probability_of_x(seen: Seen) -> Measurement:
    """The probability of x tends to that of the labels.

    Probability of x on newly drawn sequences of the first kind, mean over seen and unseen content, and seeds.
    """
    return _mean(seen.scores["first", content].x for content in CONTENT)


@claim("section 4.8 (results are similar)", "similar", within(0.75, 0.85))
def second_kind(seen: Seen) -> Measurement:
    """The second kind gives similar probabilities.

    Probability of x on newly drawn sequences of the second kind, mean over seen and unseen content, and seeds.
    """
    return _mean(seen.scores["second", content].x for content in CONTENT)


@claim("Fig 11c (our measure)", "0 when both probabilities are met", at_most(0.1))
def distance(seen: Seen) -> Measurement:
    """The whole distribution is learned, also where a key stands at a new place.

    Total variation distance to (0.8, 0.2) on unseen content, mean over both kinds and seeds.
    """
    return _mean(seen.scores[kind, "unseen"].distance for kind in KINDS)


def _along_training(seen: Seen) -> list[LineFigure]:
    accuracies = [_accuracies(kind, run, panel) for (kind, run), panel in zip(seen.runs.items(), "ab", strict=True)]
    return [*accuracies, *(_probabilities(kind, run) for kind, run in seen.runs.items())]


def _accuracies(kind: str, run: TrainedRun, panel: str) -> LineFigure:
    groups = {"all": "all", "labelled x": "unchanged", "labelled x + 1": "changed"}
    curves = {name: along_units(run, "train", "label accuracy", group=group) for name, group in groups.items()}
    return curves_against(
        f"Accuracy against labels, {kind} kind (Fig 11{panel})",
        curves["all"][0],
        {name: values for name, (_, values) in curves.items()},
        caption=f"On the first 500 training rows: how often the most probable token is the label. {MEAN_AND_RANGE}",
        x_label=run.experiment.recipe.unit,
        y_label="accuracy against labels",
        y_range=(-0.02, 1.02),
        references=[Reference("0.8", 0.8)],
    )


def _probabilities(kind: str, run: TrainedRun) -> LineFigure:
    x, of_x = along_units(run, "test", "probability of answer")
    _, of_successor = along_units(run, "test", "probability of changed")
    return curves_against(
        f"Probabilities of x and x + 1, {kind} kind (Fig 11c)",
        x,
        {"x, unseen content": of_x, "x + 1, unseen content": of_successor},
        caption=f"On test sequences, whose keys stand where training never shows them. {MEAN_AND_RANGE}",
        x_label=run.experiment.recipe.unit,
        y_label="probability",
        y_range=(0.0, 1.0),
        references=[Reference("0.8", 0.8), Reference("0.2", 0.2)],
    )


def _table(seen: Seen) -> Table:
    found = seen.scores.values()
    return column_table(
        "Newly drawn sequences at the end of training",
        f"{FRESH} sequences that training never showed, with keys at places that it shows (seen content) and "
        "does not show (unseen). Means over seeds; the distance is the total variation to (0.8, 0.2), at worst over "
        "seeds in the last column.",
        {
            "kind": [kind for kind, _ in seen.scores],
            "content": [content for _, content in seen.scores],
            "label accuracy": [float(one.right.mean()) for one in found],
            "probability of x": [float(one.x.mean()) for one in found],
            "of x + 1": [float(one.successor.mean()) for one in found],
            "distance": [float(one.distance.mean()) for one in found],
            "at worst": [float(one.distance.max()) for one in found],
        },
    )


STUDY = Study(
    "anchor/statistical",
    __doc__,
    measures_in(__name__),
    trains=experiments,
    reads=Seen,
    draws=(_along_training, _table),
    profiles={
        "quick": Profile(QUICK),
        "paper": Profile(
            PAPER, f"The paper's 9000 labelled rows; it gives no number of seeds. {BATCH_NOTE}", paper=True
        ),
    },
    smoke=replace(QUICK.shortened(steps=4, size=200), model=quick_model(width=16)),
    chosen_on=SEARCHED,
)
