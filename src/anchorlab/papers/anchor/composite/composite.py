"""The composite anchor function: learned operations, mapping sequences and depth.

Two of four anchors follow a key, and the answer is the key under both operations in turn. One of 16 ordered pairs,
(3, 4), is never trained.

Source: anchor functions, section 4.4, Definition 1, Figures 6 and 7; settings in its appendix A.
"""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.findings import Table, at_least, at_most, within
from anchorlab.models import DecoderSpec
from anchorlab.papers.anchor.composite import depths
from anchorlab.papers.anchor.composite.depths import WHOLE, Depth  # noqa: F401 - docstrings of claims name it
from anchorlab.papers.anchor.composite.outputs import COMMON, output_tables  # noqa: F401 - likewise
from anchorlab.papers.anchor.settings import BATCH_NOTE_TEXT, Setting, paper_recipe
from anchorlab.studies import SEARCHED, Profile, Reading, Study, mean_of_known, over_shared, reading
from anchorlab.studies.claim import Measurement, claim, measures_in, over, precondition
from anchorlab.studies.kit import ACCURACY, MEAN_AND_RANGE, curves_against, split_curves
from anchorlab.studies.quick import quick_model, quick_recipe
from anchorlab.tasks import task
from anchorlab.training import AdamW, Experiment, FixedSample

ANSWERED = 0.9  # the accuracy above which a split counts as answered
MORE = "more data"  # the label of the training on more sequences
MORE_SEEDS = 14
GRID = 20  # steps between two evaluations, which are to tell the splits apart: they may follow each other within 100


@dataclass(frozen=True)
class Depths(Setting):
    """A setting whose model is trained with several numbers of layers, the smallest first.

    `heads` gives the number of heads at each depth, or is empty to keep the model's; `operations` belong to the anchors
    1 to 4. With `more`, the smallest depth also trains on `more` sequences, with the first `MORE_SEEDS` seeds.
    """

    depths: tuple[int, ...] = ()
    heads: tuple[int, ...] = ()
    operations: tuple[str, ...] = ("+5", "+1", "-2", "-8")
    more: int | None = None


QUICK = Depths(
    quick_model(),
    quick_recipe(8000, steps=2500, batch=100, learning_rate=1e-3, weight_decay=0.01, evaluations=2500 // GRID).replace(
        data=FixedSample(size=8000, nested=True)
    ),
    seeds=40,
    depths=(4, 10),
    more=16_000,
)
SCALED = Depths(
    DecoderSpec(), paper_recipe(8000, epochs=40, batch=100, every=1, whole=40), seeds=1, depths=(4, 10), heads=(4, 7)
)
PAPER = Depths(DecoderSpec(), paper_recipe(8000, batch=100, every=1), seeds=5, depths=(4, 6, 8, 10), heads=(4, 5, 6, 7))
FIGURE_6 = Depths(
    DecoderSpec(),
    paper_recipe(20_000, batch=100, every=20).replace(optimiser=AdamW(learning_rate=1e-4)),
    seeds=1,
    depths=(10,),
    heads=(7,),
    operations=("+5", "+1", "-2", "-5"),
)
IN_FIGURE_6 = ("first-anchor-twice", "answer-kept")  # the claims about its one model


def experiments(setting: Depths) -> dict[int | str, Experiment]:
    """Return an experiment for each depth, after the one with more data, if any."""
    of, heads = task("anchor/composite", operations=setting.operations), setting.heads
    sizes = {depth: {"layers": depth} for depth in setting.depths}
    if heads:
        sizes = {depth: {"layers": depth, "heads": one} for depth, one in zip(setting.depths, heads, strict=True)}
    at = {depth: replace(setting, model=setting.model.replace(**size)) for depth, size in sizes.items()}
    found: dict[int | str, Experiment] = {}
    if setting.more is not None:
        least, of_least = next(iter(at.items()))
        longer = replace(of_least.on(setting.more), seeds=min(MORE_SEEDS, setting.seeds))
        found[MORE] = longer.experiment(of, f"composite, {least} layers, {setting.more} sequences")
    return found | {depth: one.experiment(of, f"composite, {depth} layers") for depth, one in at.items()}


class Seen(Reading):
    """What the models of each depth do, the smallest depth first."""

    depths = reading(lambda seen: [depths.see(run, layers) for layers, run in seen.runs.items() if layers != MORE])

    @reading
    def more(self) -> Depth | None:
        """The results of the smallest depth on more data, if that was trained."""
        return depths.see(self.runs[MORE], self.setting.depths[0]) if MORE in self.runs else None

    def accuracy(self, split: str) -> Float[Tensor, "depth member"]:
        """Return the accuracy on a split at the end."""
        return torch.stack([depth.accuracy[split] for depth in self.depths])

    def reached(self, split: str) -> Float[Tensor, "member depth"]:
        """Return the step at which the accuracy on a split first reaches `depths.WHOLE`."""
        return torch.stack([depth.reached[split] for depth in self.depths], dim=1)

    def learned(self, *at: int) -> bool:
        """Return whether the models of some depths learned the trained pairs; their outputs are judged only then."""
        return bool((self.accuracy(depths.DATA)[list(at)].mean(dim=1) > ANSWERED).all())

    def over_pairs(
        self, at: int, name: Literal["counts", "common", "most_common"], unseen: bool = False
    ) -> Float[Tensor, "member"] | None:
        """Return a number of one depth's outputs: its mean over the trained pairs, or its value for the unseen pair."""
        outputs = self.depths[at].outputs
        return outputs.over_pairs(getattr(outputs, name), unseen) if self.learned(at) else None


def _lowest_mean(values: Float[Tensor, "depth member"]) -> Float[Tensor, "member"]:
    return values[int(values.mean(dim=1).argmin())]


def _known(values: Float[Tensor, "member"] | None) -> Measurement | None:
    return None if values is None else over(values[~values.isnan()])


@precondition("section 4.4 and Fig 7a", "1", at_least(0.95))
def data(seen: Seen) -> Float[Tensor, "seed"]:
    """At every depth the trained pairs are answered on keys at unseen positions.

    Accuracy on the split `test on data`, mean over seeds, lowest over depths.
    """
    return _lowest_mean(seen.accuracy(depths.DATA))


@claim("section 3.3 and Fig 7a", "infers unseen composite anchor functions; no value in the text", at_least(0.9))
def unseen_pair(seen: Seen) -> Float[Tensor, "seed"] | None:
    """The deepest model answers the pair of anchors that is never trained.

    Accuracy on the split `test on task` at the end, mean over seeds, largest depth.
    """
    return seen.accuracy(depths.TASK)[-1] if seen.learned(-1) else None


@claim("section 4.4 and Fig 7a", "below or equal", at_least(-0.01))
def task_below_data(seen: Seen) -> Float[Tensor, "seed"] | None:
    """Generalisation on the task is usually below that on data.

    Accuracy on `test on data` minus accuracy on `test on task`, mean over seeds, lowest over depths.
    """
    return _lowest_mean(seen.accuracy(depths.DATA) - seen.accuracy(depths.TASK)) if seen.learned(0, -1) else None


@claim("section 4.4 and Fig 7b", "always", at_least(0.9))
def data_first(seen: Seen) -> Measurement:
    """Generalisation on data comes before that on the task.

    Among members that reach an accuracy of {WHOLE:g} on `test on data`, over depths and seeds: share that reach it
    there no later than on `test on task`.
    """
    first, later = seen.reached(depths.DATA), seen.reached(depths.TASK)
    return mean_of_known((first <= later).float().where(first.isfinite(), torch.nan))


@claim("section 4.4 and Fig 7b", "100 % much earlier; no value in the text", at_least(1.5))
def much_earlier(seen: Seen) -> Measurement:
    """Generalisation on data comes much earlier than that on the task.

    Step at which the accuracy on `test on task` reaches 100 % ({WHOLE:g}), divided by the same step for `test on data`,
    median over depths and seeds; the last step if a member never reaches it on the task.
    """
    first, later = seen.reached(depths.DATA), seen.reached(depths.TASK).clamp(max=seen.depths[-1].steps)
    ratios = later / first.where(first.isfinite(), torch.nan)
    return over_shared(ratios[first.isfinite().any(dim=1)], torch.nanmedian)


@claim("section 4.4 and Fig 7a", "1 with 10 layers", within(1.0, 1.5))
def one_sequence(seen: Seen) -> Float[Tensor, "seed"] | None:
    """The deepest model has a single mapping sequence for each trained pair.

    Number of mapping sequences among the correctly answered inputs of a pair, mean over seeds and over trained pairs
    with at least half of their inputs correct, largest depth.
    """
    return seen.over_pairs(-1, "counts")


@claim("section 4.4 and Fig 7a", "1 with 10 layers", within(1.0, 1.5))
def one_unseen_sequence(seen: Seen) -> Float[Tensor, "seed"] | None:
    """In the deepest model the pair that is never trained has a single mapping sequence.

    Number of mapping sequences among the correctly answered inputs of (3, 4), mean over seeds with at least half of
    them correct, largest depth.
    """
    return seen.over_pairs(-1, "counts", unseen=True)


@claim("Fig 7a", "all of them with 10 layers", at_least(0.95))
def one_common_sequence(seen: Seen) -> Float[Tensor, "seed"] | None:
    """In the deepest model nearly all inputs of a trained pair have one mapping sequence.

    Share of the correctly answered inputs with their pair's most common mapping sequence, mean over seeds and over
    trained pairs with at least half of their inputs correct, largest depth.
    """
    return seen.over_pairs(-1, "most_common")


@claim("section 4.4 and Fig 7a", "several", at_least(2.0))
def several_sequences(seen: Seen) -> Float[Tensor, "seed"] | None:
    """A shallower model has several mapping sequences for each pair.

    Number of mapping sequences that each occur in at least {COMMON:.0%} of a pair's correctly answered inputs, mean
    over seeds and over trained pairs with at least half of their inputs correct, smallest depth.
    """
    return seen.over_pairs(0, "common") if len(seen.depths) > 1 else None


@claim("section 4.4 and Fig 7a", "several", at_least(2.0))
def several_unseen_sequences(seen: Seen) -> Measurement | None:
    """In a shallower model the pair that is never trained has several mapping sequences.

    Number of mapping sequences that each occur in at least {COMMON:.0%} of the correctly answered inputs of (3, 4),
    mean over seeds with at least half of them correct, smallest depth.
    """
    return _known(seen.over_pairs(0, "common", unseen=True)) if len(seen.depths) > 1 else None


@claim("Fig 7a", "falls to 1", at_most(0.5))
def fewer_with_depth(seen: Seen) -> Float[Tensor, "seed"] | None:
    """The number of mapping sequences of trained pairs falls with depth.

    Number of mapping sequences of trained pairs, ratio of the largest to the smallest depth, mean over seeds.
    """
    deep, shallow = (seen.over_pairs(at, "counts") for at in (-1, 0))
    return None if deep is None or shallow is None or len(seen.depths) < 2 else deep / shallow


@claim("Fig 7a", "falls to 1", at_most(0.5))
def fewer_unseen_with_depth(seen: Seen) -> Measurement | None:
    """The number of mapping sequences of the pair that is never trained falls with depth.

    Number of mapping sequences of (3, 4) at the largest depth, divided by that at the smallest, mean over seeds that
    answer at least half of its inputs correctly at both.
    """
    deep, shallow = (seen.over_pairs(at, "counts", unseen=True) for at in (-1, 0))
    return None if deep is None or shallow is None or len(seen.depths) < 2 else _known(deep / shallow)


@claim("section 4.4 and Fig 6", "f f (key) for each anchor", at_least(0.9))
def first_anchor_twice(seen: Seen) -> Float[Tensor, "seed"] | None:
    """At the first anchor the deepest model applies that anchor's operation twice.

    Share of anchors at which, when they come first, the most common offset from the key is twice their operation's;
    mean over seeds, largest depth.
    """
    twice = 2 * torch.tensor(list(seen.depths[-1].outputs.adds.values()))[:, None]
    return (seen.depths[-1].outputs.learned_first == twice).float().mean(dim=0) if seen.learned(-1) else None


@claim("section 4.4 and Fig 6", "at every position from the second anchor on", at_least(0.95))
def answer_kept(seen: Seen) -> Float[Tensor, "seed"] | None:
    """From the second anchor on the deepest model gives the answer and keeps it.

    Share of the correctly answered inputs whose output is the answer at every position from the second anchor on, mean
    over seeds, largest depth.
    """
    return seen.depths[-1].outputs.answer_kept if seen.learned(-1) else None


@claim("Table 1", "why is the pattern simpler with more data; no value", at_least(1.1), own=True)
def more_with_less_data(seen: Seen) -> Float[Tensor, "seed"] | None:
    """With less data a trained pair has more mapping sequences.

    Number of mapping sequences of trained pairs, trained on the fewer sequences divided by trained on the more, which
    begin with the fewer; mean over the seeds of both, smallest depth.
    """
    if seen.more is None or not seen.learned(0) or seen.more.accuracy[depths.DATA].mean() <= ANSWERED:
        return None
    less, more = (one.outputs.over_pairs(one.outputs.counts) for one in (seen.depths[0], seen.more))
    return less[: len(more)] / more  # the first seeds are the same


_OUTSIDE_FIGURE_6 = tuple(one.name for one in measures_in(__name__) if one.name not in IN_FIGURE_6 and not one.own)


def _data_table(seen: Seen) -> Table | None:
    """Return the table of both amounts of data."""
    if seen.more is None:
        return None
    title = f"By amount of training data, {seen.more.layers} layers (Table 1)"
    return depths.depth_table(
        title, {"training sequences": [seen.setting.size, seen.setting.more]}, [seen.depths[0], seen.more]
    )


STUDY = Study(
    "anchor/composite",
    __doc__,
    measures_in(__name__),
    trains=experiments,
    reads=Seen,
    draws=(
        lambda seen: curves_against(
            "Test accuracy against depth (Fig 7a, curves)",
            [depth.layers for depth in seen.depths],
            {split: seen.accuracy(split).T for split in (depths.DATA, depths.TASK)},
            x_label="layers",
            y_label="test accuracy",
            caption=f"{MEAN_AND_RANGE} On data: trained pairs, keys at positions where training never shows them. On "
            "task: the pair (3, 4), which is never trained.",
            y_range=ACCURACY,
        ),
        lambda seen: depths.sequence_figure(seen.depths),
        lambda seen: split_curves(
            f"Accuracy along training, {seen.depths[-1].layers} layers (Fig 7b)", seen.last, depths.SPLITS
        ),
        lambda seen: output_tables(seen.depths[-1].outputs, seen.depths[-1].layers),
        lambda seen: depths.sequence_table(seen.depths),
        lambda seen: depths.depth_table(
            "Depth by depth", {"layers": [depth.layers for depth in seen.depths]}, seen.depths
        ),
        _data_table,
    ),
    profiles={
        "quick": Profile(QUICK),
        "scaled": Profile(SCALED, "The paper's smallest and largest model; its schedule is shortened."),
        "paper": Profile(
            PAPER,
            "The models of Figure 7a in the setting of appendix A, which gives 4000 epochs; the authors' code gives "
            f"4000 to 8000 epochs, and 8000 sequences. {BATCH_NOTE_TEXT}",
            paper=_OUTSIDE_FIGURE_6,
        ),
        "paper-figure-6": Profile(
            FIGURE_6,
            f"The model that Figure 6 prints, with its -5 in place of -8 for the anchor 4. {BATCH_NOTE_TEXT}",
            paper=IN_FIGURE_6,
        ),
    },
    smoke=replace(QUICK.shortened(steps=4, size=200), depths=(1, 2), more=300),
    chosen_on=SEARCHED,
)
