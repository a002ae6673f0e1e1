"""Mechanism: how two layers solve the identity anchor function, part by part.

Sequences of nine tokens hold the anchor 3 once, and the answer, the key, is the token after it. X(1) is the stream
before the first attention, Xpr what the attention adds to it.

Source: anchor functions, section 5.1 and appendix B, Figures 20 to 27.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import TypeVar

from jaxtyping import Float
from torch import Tensor

from anchorlab.findings import at_least, at_most
from anchorlab.papers.anchor import identity
from anchorlab.papers.anchor.mechanism import broadcast, feed_forward, outputs, rows, shift
from anchorlab.papers.anchor.mechanism.feed_forward import ADDED, STREAM, SUM, share_of_first
from anchorlab.papers.anchor.mechanism.rows import LOOKED_AT
from anchorlab.papers.anchor.settings import BATCH_NOTE, Setting, mirrored, paper_recipe
from anchorlab.studies import SEARCHED, Profile, Reading, Study, claim, measures_in, precondition, quick_model, reading
from anchorlab.studies.draws import by_seed
from anchorlab.studies.readings import first_at_end, of_first, sampled
from anchorlab.tasks import Batch
from anchorlab.training import Ensemble, Experiment

Value = TypeVar("Value")

FIG_21, FIG_23, FIG_24 = "appendix B.2, Fig 21", "appendix B.3, Fig 23", "appendix B.3, Fig 24"
FIG_26, FIG_27, EQUATION_8 = "appendix B.4, Fig 26", "appendix B.5, Fig 27", "appendix B.4, below equation (8)"
LAST_ROW, MOVING = "appendix B.5", "section 5.1"

QUICK = identity.TWO_LAYERS
PAPER = Setting(identity.FIGURE_13, paper_recipe(2000), seeds=5)


def experiments(setting: Setting) -> dict[str, Experiment]:
    """Return the only experiment: two layers with one head each."""
    return {"two layers": identity.experiment(setting)}


def _on_tests(measure: Callable[[Ensemble, Batch], Value]) -> cached_property[Value]:
    return reading(lambda seen: measure(seen.ensemble, seen.batch))


class Mechanism(Reading):
    """Measurements of all parts of the model at the end of training, with its test accuracy."""

    accuracy = first_at_end("test", "accuracy")
    batch = sampled("test", LOOKED_AT)
    ensemble = of_first(lambda run: run.ensemble())
    first_attention = _on_tests(shift.first_attention)
    stages = _on_tests(feed_forward.follow_stages)  # by input to the feed-forward network
    second_attention = _on_tests(broadcast.second_attention)
    by_anchor = _on_tests(broadcast.anchor_maps)
    projection = _on_tests(outputs.project_others)
    replaced_row = _on_tests(outputs.last_row)
    shown = reading(lambda seen: rows.show(seen.first, seen.ensemble, seen.batch))


@precondition("appendix B.2", "implied", at_least(0.95))
def learned(seen: Mechanism) -> Float[Tensor, "seed"]:
    """The model solves the task.

    Test accuracy, mean over seeds.
    """
    return seen.accuracy


@claim(FIG_21, "mainly", at_most(0.3))
def positions(seen: Mechanism) -> Float[Tensor, "seed"]:
    """Layer 0's attention is determined mainly by positions.

    Total variation between rows of layer 0's attention and rows computed from positions alone, mean over test sequences
    and seeds.
    """
    return seen.first_attention.positions_apart


@claim(FIG_21, "implied: mainly by positions", at_least(0.2), own=True)
def not_tokens(seen: Mechanism) -> Float[Tensor, "seed"]:
    """Tokens alone do not make layer 0's attention.

    Total variation between rows of layer 0's attention and rows computed from tokens alone, minus the same for
    positions alone, mean over test sequences and seeds.
    """
    return seen.first_attention.tokens_apart - seen.first_attention.positions_apart


@claim("appendix B.2, Fig 21d (which counts the other way round)", "almost the same", at_least(0.8))
def query_meets_key(seen: Mechanism) -> Float[Tensor, "seed"]:
    """The query of each position has the direction of the key of the position before.

    Share of positions whose Q(Xpos) is nearest in direction to K(Xpos) of the position before, mean over seeds.
    """
    return seen.first_attention.matched


@claim("appendix B.2", "remain correct", at_least(0.95))
def exact_shift(seen: Mechanism) -> Float[Tensor, "seed"]:
    """With the exact shift in place of the first attention, predictions stay the same.

    Share of predictions unchanged with the exact shift in layer 0, mean over test sequences and seeds.
    """
    return seen.first_attention.shifted_agrees


@claim("appendix B.2", "does not impact the results", at_least(0.95))
def no_norm(seen: Mechanism) -> Float[Tensor, "seed"]:
    """The layer norm after the first attention does not matter.

    Share of predictions unchanged without layer 0's first layer norm, mean over test sequences and seeds.
    """
    return seen.first_attention.unnormalised_agrees


@claim(FIG_23, "parallel", at_least(0.8))
def aligns(seen: Mechanism) -> Float[Tensor, "seed"]:
    """The feed-forward network aligns the positions that do not hold the key.

    Cosine between positions without the key after the last stage for X(1) + Xpr, mean over sequences and seeds.
    """
    return seen.stages[SUM].others[:, -1]


@claim(FIG_23, "not immediately apparent before", at_least(0.2))
def aligns_there(seen: Mechanism) -> Float[Tensor, "seed"]:
    """The alignment of the positions without the key appears only within the feed-forward network.

    Cosine between positions without the key: after the last stage minus at the input; mean over sequences, seeds.
    """
    return seen.stages[SUM].others[:, -1] - seen.stages[SUM].others[:, 0]


@claim(FIG_23, "as orthogonal as possible", at_most(0.3))
def orthogonal(seen: Mechanism) -> Float[Tensor, "seed"]:
    """The feed-forward network makes the key's position orthogonal to the others.

    Absolute cosine between the key's position and the others after the last stage, divided by the cosine among the
    others; each a mean over test sequences, the ratio a mean over seeds.
    """
    return seen.stages[SUM].key[:, -1].abs() / seen.stages[SUM].others[:, -1]


@claim("appendix B.3, Fig 20c", "norms without a value; what attention adds is the primary influence", at_least(1.0))
def norms(seen: Mechanism) -> Float[Tensor, "seed"]:
    """The feed-forward network gives a longer output for what attention adds than for the stream.

    Norm of FNN(Xpr), before residual connection and layer norm, divided by that of FNN(X(1)); each a mean over
    positions and test sequences, the ratio a mean over seeds.
    """
    return seen.stages[ADDED].norm / seen.stages[STREAM].norm


@claim("appendix B.3", "primarily influenced by Xpr", at_least(2 / 3))
def alignment_from_attention(seen: Mechanism) -> Float[Tensor, "seed"]:
    """The alignment comes primarily from what attention adds.

    Change without Xpr of the cosine between positions without the key after the last stage, as a share of the sum of
    the changes without Xpr and without X(1); mean over seeds, a half for equal changes.
    """
    whole, without_added, without_stream = (seen.stages[name].aligned for name in (SUM, STREAM, ADDED))
    return share_of_first(whole, without_added, without_stream)


@claim("appendix B.3", "primarily influenced by Xpr", at_least(2 / 3))
def orthogonality_from_attention(seen: Mechanism) -> Float[Tensor, "seed"]:
    """The key's orthogonality comes primarily from what attention adds.

    Change without Xpr of a difference, the cosine among positions without the key minus the absolute cosine between
    them and the key's position, as a share of the sum of the changes without Xpr and without X(1); mean over seeds.
    """
    whole, without_added, without_stream = (seen.stages[name].apart for name in (SUM, STREAM, ADDED))
    return share_of_first(whole, without_added, without_stream)


@claim(FIG_24, "relatively concentrated", at_most(0.8))
def concentrates(seen: Mechanism) -> Float[Tensor, "seed"]:
    """What attention adds draws the positions without the key together.

    Spread of outputs at positions without the key, ratio of input X(1) + Xpr to X(1), mean over seeds.
    """
    return seen.stages[SUM].spread / seen.stages[STREAM].spread


@claim(FIG_24, "farther away", at_least(1.2))
def moves_away(seen: Mechanism) -> Float[Tensor, "seed"]:
    """What attention adds moves the key's position away from the others.

    Distance of the key's output from the centre of the others with input X(1) + Xpr, divided by that with X(1), mean
    over seeds.
    """
    return seen.stages[SUM].distance / seen.stages[STREAM].distance


@claim(MOVING, "mainly", at_least(0.5))
def anchor_position(seen: Mechanism) -> Float[Tensor, "seed"]:
    """Layer 1's attention is determined mainly by the anchor's position.

    Share of the variance of layer 1's map over test sequences that the anchor's position explains, mean over seeds.
    """
    return seen.by_anchor.explained


@claim(MOVING, "implied: mainly by the anchor's position", at_least(0.2), own=True)
def moves_with_anchor(seen: Mechanism) -> Float[Tensor, "seed"]:
    """Layer 1's attention moves with the anchor, not with the other tokens.

    Total variation between rows of layer 1's map and of the mean map for another position of the anchor, minus that for
    the sequence's own position; mean over test sequences and seeds.
    """
    return seen.by_anchor.other_apart - seen.by_anchor.own_apart


@claim("appendix B.4, Fig 25a", "every row", at_least(0.9))
def reads_key(seen: Mechanism) -> Float[Tensor, "seed"]:
    """Before mask and softmax, layer 1's scores are greatest in the key's column.

    Share of rows of layer 1's scores with the greatest entry in the key's column, mean over sequences and seeds.
    """
    return seen.second_attention.to_key


@claim(FIG_26, "approximately two directions", at_least(0.9))
def two_directions(seen: Mechanism) -> Float[Tensor, "seed"]:
    """Layer 1's queries have one direction except at the key's position, and so have its keys.

    Cosine between the queries of positions without the key, and between their keys; the mean of both, over test
    sequences and seeds.
    """
    return (seen.second_attention.queries + seen.second_attention.keys) / 2


@claim(FIG_26, "roughly opposite", at_most(-0.5))
def opposite(seen: Mechanism) -> Float[Tensor, "seed"]:
    """The common directions of layer 1's queries and keys are opposite.

    Cosine between a query and a key of positions without the key, mean over test sequences and seeds.
    """
    return seen.second_attention.opposite


@claim(MOVING, "parallel with the same direction, where equation (8) has the opposite", at_least(0.5))
def key_alike(seen: Mechanism) -> Float[Tensor, "seed"]:
    """At the key's position, layer 1's query and key have the same direction.

    Cosine between the query and the key of the key's position, mean over test sequences and seeds.
    """
    return seen.second_attention.key_alike


@claim(MOVING, "the interested one is orthogonal to others", at_most(0.3))
def key_apart(seen: Mechanism) -> Float[Tensor, "seed"]:
    """In layer 1's queries the row of the key's position is orthogonal to the other rows, and likewise in its keys.

    Absolute value of the mean cosine between the row of the key's position and the other rows, over test sequences;
    mean of queries and keys, and over seeds.
    """
    return seen.second_attention.key_apart


@claim(EQUATION_8, "their product is positive", at_least(0.9))
def same_side(seen: Mechanism) -> Float[Tensor, "seed"]:
    """The query of the key's position is on the same side as the queries of the other positions.

    Share of sequences with a positive product of the key's query and the others' mean query, mean over seeds.
    """
    return seen.second_attention.same_side


@claim(EQUATION_8, "longer", at_least(1.0))
def longer(seen: Mechanism) -> Float[Tensor, "seed"]:
    """Queries of positions without the key are longer than the query of the key's position.

    Norm of queries at positions without the key over that of the key's query, mean over sequences and seeds.
    """
    return seen.second_attention.longer


@claim(FIG_27, "greater than other tokens", at_least(0.95))
def items(seen: Mechanism) -> Float[Tensor, "seed"]:
    """Through the projection, a position without the key favours the items 20 to 100.

    Share of pairs of an item and another token in which the item is likelier, mean over test sequences and seeds; a
    half for no preference.
    """
    return seen.projection.favour


@claim(FIG_27, "approximately the same", at_least(0.9))
def no_choice(seen: Mechanism) -> Float[Tensor, "seed"]:
    """A position without the key does not choose among the items 20 to 100.

    Entropy over the items, divided by that of an even choice, mean over test sequences and seeds.
    """
    return seen.projection.evenness


@claim(LAST_ROW, "LayerNorm(α₀ + β₀ W^V(2))", at_least(0.95))
def last_row(seen: Mechanism) -> Float[Tensor, "seed"]:
    """After the second attention, the last row is a row without the key plus the key's row through the values.

    Share of right answers with the sum α₀ + β₀ W^V(2) in place of the last row, over test sequences whose key is not
    last: α₀ is the mean of all rows without a key, β₀ the key's own row; mean over seeds.
    """
    return seen.replaced_row.made


@claim(LAST_ROW, "the other has no impact on the final result", at_least(0.85))
def answer_from_key(seen: Mechanism) -> Float[Tensor, "seed"]:
    """The answer comes from the key's row, not from the row without the key.

    Share of right answers with the sum α₀ + β₀ W^V(2) in place of the last row, minus that with the sequence's own last
    row before the second attention adds to it; mean over seeds.
    """
    return seen.replaced_row.made - seen.replaced_row.without_key


STUDY = Study(
    "anchor/mechanism",
    __doc__,
    measures_in(__name__),
    trains=experiments,
    reads=Mechanism,
    draws=(
        lambda seen: shift.shift_maps(seen.shown, seen.first_attention),
        lambda seen: feed_forward.stage_maps(seen.shown.seed, seen.stages[ADDED], ADDED, 22),
        lambda seen: feed_forward.stage_maps(seen.shown.seed, seen.stages[SUM], SUM, 23),
        lambda seen: feed_forward.norm_curves(seen.stages),
        lambda seen: feed_forward.output_points(seen.shown.seed, seen.stages, seen.batch),
        lambda seen: broadcast.anchor_figure(seen.shown.seed, seen.by_anchor),
        lambda seen: broadcast.score_maps(seen.shown),
        lambda seen: broadcast.directions(seen.shown, seen.batch),
        lambda seen: outputs.projected(seen.projection),
        by_seed(
            "Every number, seed by seed",
            f"On {LOOKED_AT} test sequences; columns are named as the claims are.",
            lambda seen: {measure.name: measure(seen) for measure in measures_in(__name__)},
        ),
        lambda seen: feed_forward.stage_table(seen.stages),
    ),
    profiles={
        "quick": Profile(QUICK, "Runs of the identity study."),
        "paper": Profile(
            PAPER,
            "The paper shows one model and does not say how many sequences it was trained on; sequences and seeds "
            f"are our choice. {BATCH_NOTE}",
        ),
    },
    smoke=replace(QUICK.shortened(steps=2, size=100), model=quick_model(width=16)),
    chosen_on=SEARCHED,
    other_task=mirrored,
)
