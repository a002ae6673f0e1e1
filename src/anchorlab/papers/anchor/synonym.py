"""Synonyms: pairs never trained are learned from an anchor that does the same.

Two anchors follow a key, and the answer is the key under both operations in turn. The pairs (4, 9) and (9, 4) are never
trained. With synonyms, the anchor 3 does what 9 does and is trained with 1, 2 and 4; without, the same number of
sequences all have pairs of 1, 2, 4 and 9.

Source: anchor functions, section 4.6, Figure 9 and Table 1; settings in its appendix A.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from anchorlab.findings import Line, LineFigure, Table, at_least, at_most, line, numbers, within
from anchorlab.lens import cosine_similarity, first_crossing
from anchorlab.models import DecoderSpec
from anchorlab.papers.anchor.settings import BATCH_NOTE_TEXT, Setting, paper_recipe
from anchorlab.studies import SEARCHED, Measurement, Profile, Reading, Study, claim, mean_of_known, measures_in, reading
from anchorlab.studies.kit import ACCURACY, MEAN_AND_RANGE, along, along_units, at_end, column_table
from anchorlab.studies.quick import quick_model, quick_recipe
from anchorlab.tasks import task
from anchorlab.training import Evaluation, Experiment, TrainedRun

UNSEEN = ("4,9", "9,4")
TWINS = ("4,3", "3,4")  # the same pairs with the synonym in place of 9, which are trained
TRAIN, DATA, TASK = "train", "test on data", "test on task"
ARMS = {"synonyms": "with synonyms", "plain": "plain data"}
ENOUGH = 0.9  # the accuracy at which a pair counts as learned
FITTED = 0.95  # accuracy on trained pairs (test on data) from which a failure on the unseen ones says anything
ANCHORS = (1, 2, 4, 3, 9)  # the synonyms last
FEWEST = 3  # the fewest members that learned both kinds of pair from which their order is judged


@dataclass(frozen=True)
class Sizes:
    """Settings with and without synonyms, one for each number of training sequences, the smallest first."""

    synonyms: tuple[Setting, ...]
    plain: tuple[Setting, ...]


def _quick(size: int, steps: int) -> Setting:
    recipe = quick_recipe(size, steps, batch=100, learning_rate=2e-3)
    measured = Evaluation(every=75, size=1000)  # enough for each of the ten or sixteen trained pairs
    return Setting(quick_model(layers=4), recipe.replace(evaluation=measured), seeds=14)


# A larger sample is trained for more steps, as with the paper's epochs. The smallest size is not trained without
# synonyms: it would only be memorised, which no claim judges.
_LARGER = (_quick(4000, 900), _quick(10_000, 1500))
QUICK = Sizes((_quick(1000, 450), *_LARGER), plain=_LARGER)
_TINY = (Setting(quick_model(), quick_recipe(1000, 2).replace(evaluation=Evaluation(every=2, size=200)), seeds=2),)


def _scaled(size: int, epochs: int = 30) -> Setting:
    recipe = paper_recipe(size, epochs=epochs, batch=100, whole=epochs)
    return Setting(DecoderSpec(), recipe.replace(evaluation=Evaluation(every=1, size=1000)), seeds=2)


SCALED = Sizes((_scaled(1000, 60), _scaled(4000), _scaled(6000)), plain=(_scaled(6000),))
_PAPER = tuple(
    Setting(DecoderSpec(), paper_recipe(size, batch=100, every=20), seeds=5)
    for size in (1000, 2000, 3000, 4000, 6000, 8000, 10_000, 15_000, 20_000)
)


def experiments(setting: Sizes) -> dict[tuple[str, int], Experiment]:
    """Return the experiments with synonyms by size, then those without."""
    return {
        (arm, one.size): one.experiment(
            task("anchor/synonym", total=one.size, synonyms=arm == "synonyms"), f"{arm}, {one.size} sequences"
        )
        for arm in ARMS
        for one in getattr(setting, arm)
    }


@dataclass(frozen=True)
class Arm:
    """The accuracies at the end by split, with or without synonyms."""

    sizes: tuple[int, ...]
    accuracy: Mapping[str, Float[Tensor, "size member"]]


class Seen(Reading):
    """The accuracies of both arms, and when pairs are learned with synonyms at the sizes of Figure 9b."""

    @reading
    def arms(self) -> dict[str, Arm]:
        """The accuracies of both arms."""
        return {name: _arm({size: run for (arm, size), run in self.runs.items() if arm == name}) for name in ARMS}

    # the sizes of Figure 9b
    sizes = reading(lambda seen: shown([size for arm, size in seen.runs if arm == "synonyms"]))

    @reading
    def embeddings(self) -> Float[Tensor, "member anchor width"]:
        """The anchors' embeddings at the largest total with synonyms, after training."""
        run = self.runs["synonyms", self.arms["synonyms"].sizes[-1]]
        return run.ensemble().weights["embed.W_E"][:, list(ANCHORS)]

    # the steps at which the unseen pairs and the same pairs with the synonym are learned [size member]; NaN for never
    unseen = reading(lambda seen: seen.learned(TASK, UNSEEN))
    twins = reading(lambda seen: seen.learned(DATA, TWINS))
    both = reading(lambda seen: seen.unseen.isfinite() & seen.twins.isfinite())  # which members learned both

    def learned(self, split: str, pairs: Sequence[str]) -> Float[Tensor, "size member"]:
        """Return the step at which the mean accuracy of pairs reaches `ENOUGH`, with synonyms."""
        steps = []
        for size in self.sizes:
            read = [along(self.runs["synonyms", size], split, "accuracy", group=pair) for pair in pairs]
            mean = torch.stack([values for _, values in read]).mean(dim=0)
            steps.append(first_crossing(read[0][0], mean, ENOUGH))
        return torch.stack(steps)


def shown(sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the sizes of Figure 9b: the paper's 3000 and 4000 if both exist, else the two largest."""
    papers = tuple(size for size in sizes if size in (3000, 4000))
    return papers if len(papers) == 2 else tuple(sizes[-2:])


def _arm(runs: Mapping[int, TrainedRun]) -> Arm:
    ends = {split: [at_end(run, split, "accuracy") for run in runs.values()] for split in (TRAIN, DATA, TASK)}
    return Arm(tuple(runs), {split: torch.stack(values) for split, values in ends.items()})


@claim("section 4.6 and Fig 9a, red", "about 1 above a certain size", at_least(0.95))
def enough_data(seen: Seen) -> Float[Tensor, "seed"]:
    """With a synonym in the training data the unseen pairs (4, 9) and (9, 4) are answered, given enough of it.

    Accuracy on the split `test on task` at the largest total of sequences, mean over seeds.
    """
    return seen.arms["synonyms"].accuracy[TASK][-1]


@claim("section 4.6 and Fig 9a, red", "no value in the text; the curve rises with data", at_most(0.5))
def little_data(seen: Seen) -> Float[Tensor, "seed"]:
    """With a synonym but too little training data the unseen pairs are answered wrongly.

    Accuracy on `test on task` at the smallest total of sequences, mean over seeds that learned the trained pairs
    (accuracy on `test on data` at least {FITTED:g}).
    """
    accuracy = seen.arms["synonyms"].accuracy
    return accuracy[TASK][0][accuracy[DATA][0] >= FITTED]


@claim("section 4.6 and Fig 9a, blue", "it struggles at different sizes; no value in the text", at_most(0.5))
def plain_fails(seen: Seen) -> Float[Tensor, "seed"] | None:
    """With as much data but no synonym the unseen pairs are answered wrongly at every size.

    Accuracy on `test on task` without synonyms, mean over seeds, highest over totals of sequences at which the trained
    pairs are learned (mean accuracy on `test on data` at least {FITTED:g}).
    """
    accuracy = seen.arms["plain"].accuracy
    judged = accuracy[TASK][accuracy[DATA].mean(dim=1) >= FITTED]
    return judged[int(judged.mean(dim=1).argmax())] if len(judged) else None


@claim("section 4.6 and Fig 9a", "significant; no value in the text", at_least(0.3))
def helps(seen: Seen) -> Float[Tensor, "seed"]:
    """The synonym is what makes the difference.

    Accuracy on `test on task` with synonyms minus that without, at the largest total, mean over seeds.
    """
    return seen.arms["synonyms"].accuracy[TASK][-1] - seen.arms["plain"].accuracy[TASK][-1]


@claim("section 4.6 and Fig 9b", "at both sizes", at_least(0.8))
def later(seen: Seen) -> Measurement:
    """The unseen pairs are learned after the same pairs with the synonym, (4, 3) and (3, 4).

    Among members that reach {ENOUGH:g} on the unseen pairs and on (4, 3) and (3, 4), over the two sizes and seeds:
    share that reach it later on the unseen pairs; judged if there are at least {FEWEST} such members.
    """
    return _in_time(seen, (seen.unseen > seen.twins).float())


@claim("section 4.6 and Fig 9b", "slightly; no value in the text", within(1.01, 1.5))
def slightly_later(seen: Seen) -> Measurement:
    """The unseen pairs are learned slightly after the same pairs with the synonym.

    Step at which the unseen pairs reach {ENOUGH:g}, divided by that for (4, 3) and (3, 4), mean over members that reach
    it on both.
    """
    return _in_time(seen, seen.unseen / seen.twins.clamp(min=1))


@claim("Table 1", "how does the network learn synonym anchors; no value", at_least(0.8), own=True)
def synonyms_nearest(seen: Seen) -> Bool[Tensor, "seed"]:
    """The embedding of the anchor 9 is nearer to its synonym's, 3, than to any other anchor's.

    Share of seeds in which the embedding of 9 has its greatest cosine over the other anchors with that of 3, at the
    largest total of sequences.
    """
    *others, rare = seen.embeddings.unbind(dim=1)
    nearest = cosine_similarity(rare.unsqueeze(1), torch.stack(others, dim=1))[:, 0].argmax(dim=-1)
    return nearest == len(others) - 1


def _in_time(seen: Seen, values: Float[Tensor, "size member"]) -> Measurement:
    """Return the values of the members that learned both kinds of pair, if there are enough of them."""
    if seen.both.sum() < FEWEST:
        return Measurement(None)
    return mean_of_known(values.where(seen.both, torch.nan).T)


def _by_pair(run: TrainedRun, size: int) -> LineFigure:
    lines = []
    for split, pair in [(TASK, pair) for pair in UNSEEN] + [(DATA, pair) for pair in TWINS]:
        times, values = along_units(run, split, "accuracy", group=pair)
        lines.append(Line(f"({pair.replace(',', ', ')})", numbers(times), numbers(values.mean(dim=0))))
    return LineFigure(
        title=f"Accuracy by pair along training, {size} sequences with synonyms (Fig 9b)",
        caption="Mean over seeds. (4, 9) and (9, 4) are never trained, (4, 3) and (3, 4) are and are tested on keys at "
        "unseen positions.",
        x_label=run.experiment.recipe.unit,
        y_label="test accuracy",
        lines=tuple(lines),
        y_range=ACCURACY,
    )


def _by_size(seen: Seen) -> Table:
    arms = seen.arms
    accuracy = {split: torch.cat([arm.accuracy[split] for arm in arms.values()]) for split in (TRAIN, DATA, TASK)}
    return column_table(
        "Accuracy by number of training sequences",
        "Over seeds, at the end of training: on the unseen pairs (test on task) and on trained pairs with keys at "
        "unseen positions (test on data).",
        {
            "data": [ARMS[name] for name, arm in arms.items() for _ in arm.sizes],
            "training sequences": [size for arm in arms.values() for size in arm.sizes],
            "unseen pairs mean": accuracy[TASK].mean(dim=1),
            "lowest": accuracy[TASK].amin(dim=1),
            "highest": accuracy[TASK].amax(dim=1),
            "trained pairs mean": accuracy[DATA].mean(dim=1),
            "train mean": accuracy[TRAIN].mean(dim=1),
        },
    )


def _timing(seen: Seen) -> Table:
    rows = [(size, seed) for size in seen.sizes for seed in seen.first.experiment.members.seeds]
    return column_table(
        "When the pairs are learned, seed by seed",
        f"Step at which the mean accuracy of a kind of pair first reaches {ENOUGH:g}, interpolated between two "
        "measurements; a dash where it never does.",
        {
            "training sequences": [size for size, _ in rows],
            "seed": [seed for _, seed in rows],
            "(4, 3) and (3, 4)": seen.twins.flatten(),
            "(4, 9) and (9, 4)": seen.unseen.flatten(),
            "later by": (seen.unseen - seen.twins).flatten(),
        },
    )


STUDY = Study(
    "anchor/synonym",
    __doc__,
    measures_in(__name__),
    trains=experiments,
    reads=Seen,
    draws=(
        lambda seen: LineFigure(
            title="Accuracy on the unseen pairs (4, 9) and (9, 4) against data (Fig 9a)",
            caption=f"{MEAN_AND_RANGE} The paper draws the curve with synonyms in red and the one without in blue.",
            x_label="training sequences",
            y_label="accuracy, test on task",
            lines=tuple(line(ARMS[name], arm.sizes, arm.accuracy[TASK].T) for name, arm in seen.arms.items()),
            log_x=True,
            y_range=ACCURACY,
        ),
        lambda seen: [_by_pair(seen.runs["synonyms", size], size) for size in seen.sizes],
        _by_size,
        _timing,
    ),
    profiles={
        "quick": Profile(QUICK, "Without synonyms, only 4000 and 10,000 sequences are trained."),
        "scaled": Profile(
            SCALED,
            "The paper's model; without synonyms only at 6000 sequences. Its schedule is shortened, to 60 epochs at "
            "1000 sequences and to 30 at more.",
        ),
        "paper": Profile(
            Sizes(_PAPER, plain=_PAPER),
            "The setting of appendix A and the authors' code. The paper shows totals from 1000 to 20000 and does not "
            f"list them, and names no seeds. {BATCH_NOTE_TEXT}",
            paper=True,
        ),
    },
    smoke=Sizes(_TINY, plain=_TINY),
    chosen_on=SEARCHED,
)
