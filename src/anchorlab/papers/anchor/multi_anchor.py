"""Ten operations: the anchors at the edges are hardest.

The anchors 1 to 10 add 1 to 10; each is tested on eight keys that it never had in training.

Source: anchor functions, section 4.9 and Figure 12.
"""

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy.stats import rankdata
from torch import Tensor

from anchorlab.findings import Reference, at_least, at_most
from anchorlab.models import DecoderSpec
from anchorlab.papers.anchor.settings import BATCH_NOTE_TEXT, Setting, only, paper_recipe
from anchorlab.studies import SEARCHED, Profile, Reading, Study, over_shared, quick_model, quick_recipe, reading
from anchorlab.studies.claim import Measurement, claim, measures_in, over, precondition
from anchorlab.studies.draws import split_curves
from anchorlab.studies.kit import ACCURACY, MEAN_AND_RANGE, at_end, column_table, curves_against
from anchorlab.studies.readings import first_at_end

ANCHORS = tuple(range(1, 11))
BOUNDARY = (1, 2, 10)
AT_BOUNDARY = torch.tensor([anchor in BOUNDARY for anchor in ANCHORS])
FITTED = 0.95

QUICK = Setting(
    quick_model(layers=3),
    quick_recipe(20_000, steps=2500, batch=100, learning_rate=2e-3, weight_decay=1.0),
    seeds=14,
)
PAPER = Setting(DecoderSpec(), paper_recipe(20_000, epochs=1000, batch=100, every=20), seeds=5)


experiments = only("ten anchors", "anchor/multi-anchor", "multi-anchor")


class Seen(Reading):
    """Accuracies at the end, and how often the answers of the test occur in training."""

    train = first_at_end("train", "accuracy")

    @reading
    def accuracy(self) -> Float[Tensor, "anchor member"]:
        """The accuracy on unseen keys."""
        return torch.stack([at_end(self.first, "test", "accuracy", group=str(anchor)) for anchor in ANCHORS])

    frequency = reading(lambda seen: answer_frequency())  # how often each anchor's test answers are training labels


def answer_frequency() -> Float[Tensor, "anchor"]:
    """Return the expected frequency, as training labels, of each anchor's answers in the test.

    In training anchor b is drawn one time in ten, its key uniformly among those allowed; the answer y then comes from
    every b whose key y - b is allowed. Counted from the definition of the task, not from samples.
    """
    first, last, held_out = 20, 100, 8  # the task's items; how many keys each anchor never has in training

    def own(anchor: int) -> range:
        return range(first + held_out * (anchor - 1), first + held_out * anchor)

    def share(answer: int) -> float:
        makers = [b for b in ANCHORS if first <= answer - b <= last and answer - b not in own(b)]
        return len(makers) / len(ANCHORS) / (last - first + 1 - held_out)

    return torch.tensor([sum(share(key + a) for key in own(a)) / held_out for a in ANCHORS])


@precondition(
    "section 4.9 and Fig 12", "1", at_least(FITTED), of=("operations", "boundary", "worst", "rarity-explains")
)
def fits(seen: Seen) -> Measurement:
    """The ten operations are fitted.

    Accuracy on the first 500 training sequences, lowest over seeds.
    """
    return over(seen.train, taken=torch.min)


@claim("section 4.9 and Fig 12", "close to 1 for most anchors", at_least(0.9))
def operations(seen: Seen) -> Float[Tensor, "seed"]:
    """In most cases the model generalises to keys that an anchor never had in training.

    Accuracy on unseen keys, median over the anchors 3 to 9, mean over seeds; judged only if training is fitted.
    """
    return seen.accuracy[~AT_BOUNDARY].median(dim=0).values


@claim("section 4.9 and Fig 12", "lower; no value in the text", at_most(-0.1))
def boundary(seen: Seen) -> Measurement:
    """Anchors near the boundary (1, 2, 10) are learned worse.

    Accuracy on unseen keys of each of the anchors 1, 2 and 10 minus the mean over 3 to 9, mean over seeds; of the three
    the greatest; the detail gives each.
    """
    rows = (seen.accuracy[AT_BOUNDARY] - seen.accuracy[~AT_BOUNDARY].mean(dim=0)).T
    return over_shared(rows, lambda found: found.mean(dim=0).max(), detail=_by_anchor(rows.mean(dim=0)))


def _by_anchor(values: Float[Tensor, "boundary"]) -> str:
    return ", ".join(f"{value:.3g} for {anchor}" for anchor, value in zip(BOUNDARY, values.tolist(), strict=True))


@claim("Fig 12", "the lowest bars", at_least(0.8))
def worst(seen: Seen) -> Bool[Tensor, "seed"]:
    """The anchor learned worst is near the boundary (1, 2 or 10).

    Share of seeds whose least accurate anchor is 1, 2 or 10.
    """
    # A tie with an inner anchor does not count: untrained, all ten are equally bad.
    return seen.accuracy[AT_BOUNDARY].amin(dim=0) < seen.accuracy[~AT_BOUNDARY].amin(dim=0)


@claim("section 4.9", "the frequency of their output tokens is smaller", at_most(0.9), exact=True)
def rare_answers(seen: Seen) -> Measurement:
    """What the boundary anchors ask for is rarer in training.

    Frequency, among training labels, of the answers to unseen keys of each of the anchors 1, 2 and 10, divided by the
    mean of 3 to 9; of the three the greatest; the detail gives each; counted exactly.
    """
    ratios = seen.frequency[AT_BOUNDARY] / seen.frequency[~AT_BOUNDARY].mean()
    return Measurement(float(ratios.max()), detail=_by_anchor(ratios))


@claim("section 4.9", "given as the likely reason; no value in the text", at_least(0.5))
def rarity_explains(seen: Seen) -> Measurement:
    """The accuracy of an anchor follows how often its answers occur in training.

    Rank correlation, over ten anchors, of accuracy (mean over seeds) with the frequency of answers in training.
    """
    frequency = rankdata(seen.frequency.numpy())

    def correlation(rows: Tensor) -> float:
        return float(np.corrcoef(rankdata(rows.float().mean(dim=0).numpy()), frequency)[0, 1])

    return over_shared(seen.accuracy.T, correlation)


STUDY = Study(
    "anchor/multi-anchor",
    __doc__,
    measures_in(__name__),
    trains=experiments,
    reads=Seen,
    draws=(
        lambda seen: curves_against(
            "Accuracy on unseen keys by anchor (Fig 12)",
            ANCHORS,
            {"transformer": seen.accuracy.T},
            x_label="anchor",
            y_label="test accuracy",
            caption=f"{MEAN_AND_RANGE} In training no anchor has the keys that it is tested on.",
            y_range=ACCURACY,
            references=[Reference("the boundary: 1, 2", 2.5, "x"), Reference("and 10", 9.5, "x")],
        ),
        lambda seen: curves_against(
            "How often training shows what each anchor asks for in test",
            ANCHORS,
            {"counted": seen.frequency[None, :]},
            x_label="anchor",
            y_label="share of training labels",
            caption="Share of training labels that are the answer to one of the anchor's unseen keys, mean over "
            "its eight keys; counted from the task's definition.",
            y_range=(0.0, None),
        ),
        split_curves("Accuracy along training, all anchors", {"train": "training", "test": "unseen keys"}),
        lambda seen: column_table(
            "Anchor by anchor",
            "Accuracy on unseen keys over seeds at the end of training, and the share of training labels that are "
            "an answer the anchor asks for in test (mean over its eight keys, in per cent).",
            {
                "anchor": ANCHORS,
                "mean": seen.accuracy.mean(dim=1),
                "lowest": seen.accuracy.amin(dim=1),
                "highest": seen.accuracy.amax(dim=1),
                "answers in training, %": [100 * share for share in seen.frequency.tolist()],
            },
        ),
    ),
    profiles={
        "quick": Profile(QUICK),
        "paper": Profile(
            PAPER,
            "The paper names no number of sequences, epochs or seeds for this task. The authors' code has this many "
            f"sequences, batches of 50 to 100, and 1000 to 4000 epochs. {BATCH_NOTE_TEXT}",
            paper=True,
        ),
    },
    smoke=QUICK.shortened(steps=20),
    chosen_on=SEARCHED,
)
