"""Working memory: the intermediate result is held until the second anchor.

A key is followed by one of two anchors and, after noise of any length, by one of two others; the answer is the key
under both operations in turn, asked for at the end of 20 tokens. Only the last output is trained; here the outputs of
all positions are read.

Source: anchor functions, section 4.5 and Figure 8; settings in its appendix A.
"""

from dataclasses import replace
from itertools import product

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from anchorlab.findings import LineFigure, Table, at_least
from anchorlab.lens import look
from anchorlab.models import DecoderSpec
from anchorlab.papers.anchor.settings import BATCH_NOTE_TEXT, Setting, mirrored, only, paper_recipe
from anchorlab.studies import SEARCHED, Profile, Reading, Study, claim, measures_in, quick_model, quick_recipe, reading
from anchorlab.studies.draws import by_seed, curves
from anchorlab.studies.kit import ACCURACY, MEAN_AND_RANGE, curves_against
from anchorlab.studies.readings import first_at_end, sampled
from anchorlab.tasks import Batch

FIRST, SECOND = (1, 2), (3, 4)  # the anchors that can come first, and second
ADDS = {1: 0, 2: 1, 3: 0, 4: -2}  # what each anchor adds to the key
LEARNED = 0.9  # only seeds of this test accuracy are judged: what an untrained model holds says nothing
SHORTEST = 3  # shorter stretches are left out: a single position holds one value in any case
LOOKED_AT = 1000  # test sequences
AROUND = 8  # positions before and after the second anchor in the figure

QUICK = Setting(
    quick_model(layers=3, heads=2),
    quick_recipe(40_000, steps=1800, batch=100, learning_rate=2e-3, weight_decay=0.1),
    seeds=14,
)
SCALED = Setting(DecoderSpec(), paper_recipe(40_000, epochs=12, batch=100, every=1, whole=12), seeds=1)
PAPER = Setting(DecoderSpec(), paper_recipe(40_000, epochs=300, batch=100, every=10), seeds=5)


experiments = only("working memory", "anchor/working-memory", "working memory")


class Seen(Reading):
    """The members' outputs on test sequences; a stretch runs from the first anchor to just before the second."""

    accuracy = first_at_end("test", "accuracy")
    batch = sampled("test", LOOKED_AT)
    # the most probable tokens [member batch position]
    outputs = reading(lambda seen: look(seen.first.ensemble(), seen.batch.inputs)["output"].argmax(dim=-1))
    right = reading(lambda seen: seen.outputs == seen.batch.answers[:, :1])  # whether an output is the answer
    # share of positions from the second anchor on whose output is the answer
    answered = reading(lambda seen: _share(seen.right, _from(seen.batch, 1) >= 0))
    # the positions of stretches of at least `SHORTEST`
    stretch = reading(lambda seen: first_stretch(seen.batch, SHORTEST))
    learned = reading(lambda seen: seen.accuracy >= LEARNED)  # which members learned the task
    # the index in `FIRST` of each sequence's first anchor [batch]
    which = reading(lambda seen: (seen.batch.latents["anchors"][:, 0] == FIRST[1]).long())
    # whether an output is the key plus the constant of the first anchor [member batch position]
    moved = reading(lambda seen: seen.outputs - seen.keys == seen.constants[:, seen.which, None])
    # whether the answer differs from the key plus the constant learned for the first anchor [member batch]
    changing = reading(lambda seen: seen.constants[:, seen.which] != (seen.batch.answers[:, :1] - seen.keys)[:, 0])

    @property
    def keys(self) -> Int[Tensor, "batch 1"]:
        """The key of each sequence."""
        return self.batch.inputs.gather(1, self.batch.latents["key_positions"][:, :1])

    @reading
    def most_common(self) -> Int[Tensor, "member batch"]:
        """The number of positions in each stretch with the most common output of the stretch."""
        alike = self.outputs[..., :, None] == self.outputs[..., None, :]
        return (alike * self.stretch[:, :, None] * self.stretch[:, None, :]).sum(dim=-1).amax(dim=-1)

    @property
    def common(self) -> Float[Tensor, "member"]:
        """The share of positions in stretches with the most common output of their stretch."""
        return self.most_common.sum(dim=1) / self.stretch.sum()

    @property
    def whole(self) -> Float[Tensor, "member"]:
        """The share of stretches with a single output."""
        return (self.most_common == self.stretch.sum(dim=1))[:, self.stretch.any(dim=1)].float().mean(dim=1)

    @reading
    def constants(self) -> Int[Tensor, "member anchor"]:
        """The most common output minus key in stretches, for each first anchor."""
        moves, places = self.outputs - self.keys, range(len(FIRST))
        chosen = [moves[:, self.stretch & (self.which == place)[:, None]] for place in places]
        return torch.stack([one.mode(dim=-1).values for one in chosen], dim=1)

    @property
    def possible(self) -> Bool[Tensor, "member batch position"]:
        """Whether an output is the answer under one second anchor or the other."""
        sums = torch.tensor([[ADDS[one] + ADDS[two] for two in SECOND] for one in FIRST])[self.which]
        return ((self.outputs - self.keys)[..., None] == sums[:, None]).any(dim=-1)


def first_stretch(batch: Batch, shortest: int) -> Bool[Tensor, "batch position"]:
    """Return which positions are in a stretch, from the first anchor to before the second, of at least `shortest`."""
    stretch = (_from(batch, 0) >= 0) & (_from(batch, 1) < 0)
    return stretch & (stretch.sum(dim=1, keepdim=True) >= shortest)


def _from(batch: Batch, anchor: int) -> Int[Tensor, "batch position"]:
    # anchor: 0 the first, 1 the second
    return torch.arange(batch.inputs.shape[1]) - batch.latents["anchor_positions"][:, anchor : anchor + 1]


def _share(where: Bool[Tensor, "member batch position"], of: Bool[Tensor, "batch position"]) -> Float[Tensor, "member"]:
    return where[:, of].float().mean(dim=1)


@claim("section 4.5 and Fig 8", "at every position of its three examples", at_least(0.9))
def one_value(seen: Seen) -> Float[Tensor, "seed"]:
    """From the first anchor until the second the output keeps one value.

    Share of positions from the first anchor to before the second whose output is the most common one among them, in
    sequences with at least {SHORTEST} of them; mean over seeds that learned (test accuracy at least {LEARNED:g}).
    """
    return seen.common[seen.learned]


@claim("section 4.5 and Fig 8", "at every position of its three examples", at_least(0.9))
def function_of_key(seen: Seen) -> Float[Tensor, "seed"]:
    """The value held until the second anchor is the key moved by a constant of the first: an intermediate result.

    Share of positions from the first anchor to before the second whose output is the key plus the constant learned for
    the first anchor, the most common difference of output and key; mean over seeds that learned.
    """
    return _share(seen.moved, seen.stretch)[seen.learned]


@claim("Fig 8, whose text allows another one", "in its three examples", at_least(0.9))
def own_operation(seen: Seen) -> Float[Tensor, "seed"]:
    """The constant by which the key is moved is that of the first anchor's operation.

    Share of first anchors whose learned constant is their operation's, mean over seeds that learned.
    """
    return (seen.constants == torch.tensor([ADDS[one] for one in FIRST])).float().mean(dim=1)[seen.learned]


@claim("section 4.5 and Fig 8", "at every position of its three examples", at_least(0.9))
def answer_kept(seen: Seen) -> Float[Tensor, "seed"]:
    """From the second anchor on the output is the final answer.

    Share of positions from the second anchor to the end whose output is the answer, mean over seeds that learned.
    """
    return seen.answered[seen.learned]


def around(
    values: Bool[Tensor, "member batch position"], batch: Batch, rows: Bool[Tensor, "member batch"], reach: int
) -> Float[Tensor, "member place"]:
    """Return each member's mean over sequences at each position from `reach` before to `reach` after the second anchor.

    Only sequences in `rows` count, and in them positions from the first anchor on; NaN where there are none.
    """
    place = _from(batch, 1).masked_fill(_from(batch, 0) < 0, reach + 1)
    counted = rows[:, :, None, None] & (place[:, :, None] == torch.arange(-reach, reach + 1))
    return (values[..., None] & counted).sum(dim=(1, 2)) / counted.sum(dim=(1, 2))


def _switch(seen: Seen) -> LineFigure:
    kept = seen.learned if seen.learned.any() else torch.ones_like(seen.learned)
    held = {"key under the first anchor": seen.moved, "final answer": seen.right}
    return curves_against(
        "What the output holds around the second anchor (Fig 8)",
        range(-AROUND, AROUND + 1),
        {name: around(values, seen.batch, seen.changing, AROUND)[kept] for name, values in held.items()},
        x_label="position relative to the second anchor",
        y_label="share of sequences",
        caption="Share of test sequences whose output is the intermediate result (the key plus the constant learned "
        "for the first anchor) or the final answer, by position relative to the second anchor; before it, only "
        "positions from the first anchor on. For each seed, only sequences whose answer differs from its "
        "intermediate result count, since otherwise the two are the same. Mean over seeds that learned the task; "
        "the band reaches from the lowest to the highest.",
        y_range=ACCURACY,
    )


def _examples(seen: Seen) -> Table:
    anchors, long = seen.batch.latents["anchors"], first_stretch(seen.batch, 2 * SHORTEST).any(dim=1)
    rows = []
    for first, second in product(FIRST, SECOND):
        for at in ((anchors == torch.tensor([first, second])).all(dim=1) & long).nonzero()[:1, 0].tolist():
            answer = int(seen.batch.answers[at, 0])
            key = answer - ADDS[first] - ADDS[second]
            sum_text = f"{key}{ADDS[first]:+d}{ADDS[second]:+d}={answer}"
            rows.append((f"input, anchors {first} and {second}", _tokens(seen.batch.inputs[at]), sum_text))
            rows.append(("output", _tokens(seen.outputs[0, at]), ""))
    return Table(
        "Inputs and outputs (Fig 8)",
        f"Seed {seen.first.experiment.members.seeds[0]}; the first test sequence of each pair of anchors with at least "
        f"{2 * SHORTEST} positions from the first anchor until the second. Every position's most probable token.",
        columns=("", "tokens", "operations"),
        rows=tuple(rows),
    )


def _tokens(row: Int[Tensor, "position"]) -> str:
    return " ".join(map(str, row.tolist()))


STUDY = Study(
    "anchor/working-memory",
    __doc__,
    measures_in(__name__),
    trains=experiments,
    reads=Seen,
    draws=(
        _switch,
        curves(
            "Test accuracy along training",
            "test",
            "accuracy",
            caption=f"{MEAN_AND_RANGE} In test the key is at a position where training never shows it (modular "
            "residue).",
        ),
        _examples,
        by_seed(
            "What the output holds, seed by seed",
            f"On {LOOKED_AT} test sequences; stretches from the first anchor until the second of at least {SHORTEST} "
            "positions. A learned constant is the most common difference of output and key; a possible answer is one "
            "that either second anchor would give. The last column covers positions from the second anchor on.",
            lambda seen: {
                "test accuracy": seen.accuracy,
                "positions with one value": seen.common,
                "stretches of one value": seen.whole,
                **{
                    f"constant of anchor {anchor} (operation {ADDS[anchor]:+d})": constant
                    for anchor, constant in zip(FIRST, seen.constants.T, strict=True)
                },
                "positions with key plus constant": _share(seen.moved, seen.stretch),
                "positions with a possible answer": _share(seen.possible, seen.stretch),
                "positions with the answer": seen.answered,
            },
        ),
    ),
    profiles={
        "quick": Profile(QUICK),
        "scaled": Profile(SCALED, "The paper's model; its schedule is shortened."),
        "paper": Profile(
            PAPER,
            "The model and schedule of appendix A, and the number of sequences of the authors' code, for the 300 "
            "epochs that the paper's figure shows, so that the learning rate is still rising at the end. The paper "
            f"names no seeds. {BATCH_NOTE_TEXT}",
            paper=True,
        ),
    },
    smoke=replace(QUICK.shortened(steps=2, size=200), model=quick_model(layers=3, heads=2, width=16)),
    chosen_on=SEARCHED,
    other_task=mirrored,
)
