"""Open questions: what heads, layers, width, learning rate and other choices do for learning.

Table 1 lists questions for further exploration. Questions that presuppose a fact, such as how sensitive the learning
rate is, are measured on the identity task with few enough sequences that choices matter, one change at a time.

Source: anchor functions, Table 1; section 5.6 on deep layers; section 6.2 on the initialisation.
"""

from math import isclose

import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.findings import at_least, at_most, within
from anchorlab.papers.anchor.open_questions import choices, layers, outcomes, spikes
from anchorlab.papers.anchor.open_questions.choices import FEW_HEADS, FEW_LAYERS, SEVERAL_HEADS, SEVERAL_LAYERS
from anchorlab.papers.anchor.open_questions.outcomes import LEARNED, effect
from anchorlab.papers.anchor.open_questions.spikes import PEAK, WINDOW  # noqa: F401 - docstrings of claims name them
from anchorlab.papers.anchor.perturbed import MOVE  # noqa: F401 - likewise
from anchorlab.papers.anchor.settings import BATCH_NOTE
from anchorlab.studies import SEARCHED, Profile, Reading, Study, measures_in, over_shared, reading
from anchorlab.studies.claim import Measurement, claim, claims, over

TENFOLD = 10.0  # the ratio of two initial scales that are compared
HELPS = 0.02  # a spike helps if test accuracy gains at least this
FEWEST = 10  # the number of spikes below which nothing is said about them
FITTED = 0.99  # a seed fits its training sequences from this training accuracy on
AFFECTS = 0.2  # a choice affects learning from this difference in test accuracy on
NEAR = 4.0  # neighbours of the base's value differ from it by a factor below this: here of about three
TABLE_1 = "Table 1"
NOT_ASKED = "not asked, the learning rate alone; no value"


class Seen(Reading):
    """Outcomes of each choice, also on many sequences, loss spikes at constant rates, and the layers along training."""

    choices = reading(lambda seen: outcomes.outcomes(seen.runs, seen.setting))  # the outcomes of each choice
    # the outcomes on many sequences of the values whose learning times are compared
    many = reading(lambda seen: outcomes.timed(seen.runs, seen.setting))
    spikes = reading(lambda seen: spikes.spikes(seen.runs[choices.SPIKES]))  # the spikes at constant learning rates
    layers = reading(lambda seen: layers.layers_along(seen.runs[choices.ORDER]))  # both layers along training
    # of the models on many sequences, by value: test accuracy without their last layers, and the rise of the loss
    left_out = reading(lambda seen: {one: outcomes.left_out(run) for one, run in outcomes.on_many(seen.runs).items()})
    rises = reading(lambda seen: outcomes.rises(outcomes.on_many(seen.runs)))

    def near(self, choice: str) -> Float[Tensor, "value seed"]:
        """Return the test accuracies at the base's value and at those within a factor of about three of it."""
        values = self.choices[choice]
        usual = next(one.value.amount for one in values if one.base)
        return torch.stack([one.test for one in values if usual / NEAR < one.value.amount < usual * NEAR])


def _gain(seen: Seen, choice: str, few: int, several: int) -> Tensor:
    tests = {one.value.amount: one.test for one in seen.choices[choice]}
    return tests[several] - tests[few]


def _sooner(seen: Seen, choice: str) -> Measurement | None:
    """Return the steps that the larger amount takes, divided by those of the smaller; None if no seed learned."""
    few, several = (seen.many[choices.Value(choice, amount)] for amount in choices.COMPARED[choice])
    if not torch.cat([few.times, several.times]).isfinite().any():
        return None
    steps = torch.stack([few.until, several.until], dim=1)
    before, after = steps.mean(dim=0).tolist()
    detail = f"{after:.3g} steps until {LEARNED:g} against {before:.3g}"
    return over_shared(steps, lambda rows: rows[:, 1].mean() / rows[:, 0].mean(), detail=detail)


@claim(TABLE_1, "what is the benefit; no value", at_least(0.1))
def heads_generalise(seen: Seen) -> Float[Tensor, "seed"]:
    """Several heads generalise better than one of their total width: a benefit of multiple heads in training.

    Test accuracy with {SEVERAL_HEADS} heads minus that with {FEW_HEADS} of the same total width, hence as many
    parameters; mean over seeds.
    """
    return _gain(seen, choices.SHARED, FEW_HEADS, SEVERAL_HEADS)


@claim(TABLE_1, "what is the benefit; no value", at_most(0.9))
def heads_sooner(seen: Seen) -> Measurement | None:
    """Several heads learn the task sooner than one of their total width.

    Mean steps until test accuracy {LEARNED:g} with {SEVERAL_HEADS} heads, divided by those with {FEW_HEADS} of the same
    total width, on many sequences; the whole training if it is never reached.
    """
    return _sooner(seen, choices.SHARED)


@claim(TABLE_1, "what is the benefit; no value", at_least(0.1))
def layers_generalise(seen: Seen) -> Float[Tensor, "seed"]:
    """More layers than the task needs generalise better: a benefit of multiple layers in training.

    Test accuracy with {SEVERAL_LAYERS} layers minus that with {FEW_LAYERS}, mean over seeds.
    """
    return _gain(seen, choices.LAYERS, FEW_LAYERS, SEVERAL_LAYERS)


@claim(TABLE_1, "what is the benefit; no value", at_most(0.9))
def layers_sooner(seen: Seen) -> Measurement | None:
    """More layers than the task needs learn it sooner.

    Mean steps until test accuracy {LEARNED:g} with {SEVERAL_LAYERS} layers, divided by those with {FEW_LAYERS}, on many
    sequences; the whole training if it is never reached.
    """
    return _sooner(seen, choices.LAYERS)


@claim(TABLE_1, "how does it affect it", at_least(AFFECTS))
def width_matters(seen: Seen) -> Float[Tensor, "seed"]:
    """The hidden space dimension affects learning.

    Test accuracy at the best width minus that at the worst, both chosen by the other seeds, mean over seeds.
    """
    return effect(torch.stack([one.test for one in seen.choices[choices.WIDTH]]))


@claim(TABLE_1, "so sensitive; no value", at_least(0.5))
def rate_sensitive(seen: Seen) -> Float[Tensor, "seed"]:
    """Learning is sensitive to the learning rate.

    Test accuracy at the best learning rate minus that at the worst, among the base's and those about three times larger
    and smaller, chosen by the other seeds; mean over seeds.
    """
    return effect(seen.near(choices.RATE))


@claim(TABLE_1, "so sensitive", at_least(0.1))
def rate_most_sensitive(seen: Seen) -> Measurement:
    """Learning is more sensitive to the learning rate than to batch, weight decay or initial scale.

    Test accuracy at the best learning rate minus that at the worst, minus the largest such difference for batch, weight
    decay and initial scale, each changed by a factor of about three, too.
    """
    effects = {
        choice: effect(seen.near(choice)) for choice in (choices.RATE, choices.BATCH, choices.DECAY, choices.SCALE)
    }
    if not len(effects[choices.RATE]):
        return Measurement(None)
    detail = ", ".join(f"{choice} {float(one.mean()):.3g}" for choice, one in effects.items())

    def difference(rows: Tensor) -> Tensor:
        means = rows.mean(dim=0)
        return means[0] - means[1:].max()

    return over_shared(torch.stack(list(effects.values()), dim=1), difference, detail=detail)


@claim(TABLE_1, NOT_ASKED, at_least(AFFECTS))
def batch_matters(seen: Seen) -> Float[Tensor, "seed"]:
    """The batch size affects learning.

    Test accuracy at the best batch minus that at the worst, among the base's and those about three times smaller and
    larger, chosen by the other seeds; with equal steps, or epochs if the recipe counts them; mean over seeds.
    """
    return effect(seen.near(choices.BATCH))


@claim(TABLE_1, NOT_ASKED, at_least(AFFECTS))
def decay_matters(seen: Seen) -> Float[Tensor, "seed"]:
    """The weight decay affects learning.

    Test accuracy at the best weight decay minus that at the worst, among the base's and those about three times smaller
    and larger, chosen by the other seeds; mean over seeds.
    """
    return effect(seen.near(choices.DECAY))


@claim("section 6.2", "the smaller, the lower the complexity of what is fitted", at_least(0.1))
def small_weights_generalise(seen: Seen) -> Measurement:
    """Smaller initial weights generalise better.

    Test accuracy at an initial scale minus that at one {TENFOLD:g} times as large, mean over seeds that fit their
    training sequences at both (training accuracy at least {FITTED:g}); the lowest over all pairs of such scales.
    """
    # Section 6.2 says it of the whole curve: "as the initialization of network weights becomes smaller, the neurons in
    # the same layer would tend to be more condensed", and "Condensation implies that neural networks tend to fit the
    # data with a function with complexity as small as possible".
    values = seen.choices[choices.SCALE]
    test = torch.stack([one.test.where(one.train >= FITTED, torch.nan) for one in values], dim=1)  # [seed scale]
    pairs = [
        (small, large)
        for small, one in enumerate(values)
        for large, other in enumerate(values)
        if isclose(other.value.amount, TENFOLD * one.value.amount)
    ]
    gains = torch.stack([test[:, small] - test[:, large] for small, large in pairs], dim=1)
    return over_shared(gains[gains.isfinite().any(dim=1)], lambda rows: rows.nanmean(dim=0).nan_to_num(torch.inf).min())


@claim(TABLE_1, "sometimes but not always", within(0.1, 0.9))
def spikes_help(seen: Seen) -> Measurement:
    """Loss spikes help sometimes, not always.

    Share of loss spikes over which test accuracy rises by at least {HELPS:g} more than in an equally long time before.
    In a spike the training loss rises to {PEAK} times the lowest of the {WINDOW} evaluations before, and comes back.
    Judged if there are at least {FEWEST} spikes.
    """
    helping = sum(spike.gain >= HELPS for spike in seen.spikes)
    detail = f"{helping} of {len(seen.spikes)} spikes"
    if len(seen.spikes) < FEWEST:
        return Measurement(None, detail=detail)
    # a seed's spikes, at all learning rates, are one unit
    by_seed: dict[int, list[bool]] = {}
    for spike in seen.spikes:
        by_seed.setdefault(spike.seed, []).append(spike.gain >= HELPS)
    counts = torch.tensor([[sum(own), len(own)] for own in by_seed.values()])
    return over_shared(counts, lambda rows: rows[:, 0].sum() / rows[:, 1].sum(), "seeds with spikes", detail)


@claim(TABLE_1, "is there one; no value", at_least(0.9))
def layer_order(seen: Seen) -> Measurement:
    """Layers are learned in an order.

    Share of seeds, among those that learned, with the more common order of layers: which comes first, the shift of
    layer 0 or the broadcast of layer 1, by when it is halfway to its final attention.
    """
    shift, broadcast = (seen.layers.halfway[name] for name in ("shift", "broadcast"))
    if not len(shift):
        return Measurement(None)
    first, second = shift < broadcast, broadcast < shift
    detail = f"layer 0 first in {int(first.sum())}, layer 1 first in {int(second.sum())} of {len(shift)} seeds"
    return over(max(first, second, key=torch.sum), "seeds that learned", detail=detail)


@claim("section 5.6", "extra deep layers are negligible", at_least(0.95))
def deep_layers_negligible(seen: Seen) -> Measurement:
    """Layers beyond those that the task needs can be left out after training.

    Test accuracy of {SEVERAL_LAYERS} layers without those beyond the first {FEW_LAYERS}, divided by that with them, on
    many sequences; mean over seeds that learned the task.
    """
    by_count = seen.left_out[choices.Value(choices.LAYERS, SEVERAL_LAYERS)]
    whole, shallow = by_count[0], by_count[SEVERAL_LAYERS - FEW_LAYERS]
    return over((shallow / whole)[whole >= LEARNED], "seeds that learned")


@claims(
    TABLE_1,
    "how does it differ; no value",
    at_least(1.1),
    {"landscape-differs-by-heads": choices.SHARED, "landscape-differs-by-layers": choices.LAYERS},
)
def landscape_differs(seen: Seen, choice: str) -> Measurement:
    """The loss landscape differs with the number of {choice}.

    Rise of the loss on training sequences when all weights move by {MOVE:g} of their norm: at one number divided by
    that at the other, where the other seeds choose the larger one; on many sequences, geometric mean over seeds that
    learned the task with both.
    """
    rise = outcomes.compared(seen.rises, choice)
    learned = torch.stack([one.test >= LEARNED for value, one in seen.many.items() if value.choice == choice])
    judged = (learned & rise.isfinite()).all(dim=0)
    return over_shared(effect(rise[:, judged]), lambda rows: rows.mean().exp(), "seeds that learned")


STUDY = Study(
    "anchor/open-questions",
    __doc__,
    measures_in(__name__),
    own=True,
    trains=choices.experiments,
    reads=Seen,
    draws=(
        lambda seen: outcomes.accuracy_dots(seen.choices),
        lambda seen: outcomes.speed_curves(
            [seen.runs[choices.MANY], *(seen.runs[choices.MANY, one] for one in seen.setting.timed)]
        ),
        lambda seen: spikes.spike_curves(seen.runs[choices.SPIKES], seen.setting.rates),
        lambda seen: layers.layer_curves(seen.layers),
        lambda seen: outcomes.rise_curves(seen.rises),
        lambda seen: outcomes.value_table(seen.choices),
        lambda seen: outcomes.speed_table(seen.many.values()),
        lambda seen: outcomes.left_out_table(seen.left_out),
        lambda seen: spikes.spike_table(seen.spikes, seen.runs[choices.SPIKES]),
    ),
    profiles={
        "quick": Profile(
            choices.QUICK,
            "The base setting is two layers of one head, width 64, 600 steps of batch 50 on 450 sequences with "
            "learning rate 3e-3 and weight decay 0.3. Loss spikes: 1200 steps at constant learning rates, no "
            "clipping. Learning times, and order of layers: the base setting on 1000 sequences.",
        ),
        "paper": Profile(
            choices.PAPER,
            "The base setting is that of appendix A and the authors' code, four layers of four heads, width 400, on "
            "400 sequences; layers are looked at in the two-layer model. Table 1 names no setting, so that none is "
            f"the paper's own. {BATCH_NOTE}",
        ),
    },
    smoke=choices.SMOKE,
    chosen_on=SEARCHED,
)
