"""Heads of a language model: which of them shift, broadcast, attend to the first token, match and induce.

Nothing is trained. On pieces of ordinary English, and on random tokens that are repeated once, every head of a
pretrained model gets a score for each thing that heads do in the small models: shift by some distance, broadcast from
one position, attend to the first token, to itself or to all tokens alike, to earlier copies of a token (matching) or to
the tokens after those copies (induction). A head that attends to the first token is not counted as broadcasting: in
language models a head with nothing to do attends there. Each score is compared with chance and with the same
architecture with random weights. Then the heads that shift are removed, compared with as many others drawn at random,
and then every group of consecutive layers. The heads of one model are not independent, so intervals are over texts.

Source: anchor functions, sections 5.5 and 5.6, Figures 17 and 28; stacked attention heads, section 8.2.
"""

from math import nan

import numpy as np
import torch
from jaxtyping import Float
from scipy.stats import rankdata
from torch import Tensor

from anchorlab.findings import at_least, at_most
from anchorlab.papers.language.heads.observing import Seen, Setting, observe, third
from anchorlab.papers.language.heads.overview import figures, tables
from anchorlab.papers.language.heads.scores import ScoredHeads, reached_by_chance
from anchorlab.papers.pretrained.opening import TINY
from anchorlab.studies import Measurement, Profile, Study, claim, measures_in, over, over_shared

PIECES, SEQUENCES = "pieces", "sequences"
BEATEN = 0.95
"""The share of random placements of heads that an order of layers must beat."""


def _rank_correlation(scored: ScoredHeads, detector: str) -> Measurement:
    scores = scored.scores[detector]
    if len(scores) == 1 or not bool((scores != scores[0, 0]).any()):
        return Measurement(None)  # nothing is in an order
    layers = rankdata(np.repeat(np.arange(len(scores)), scores.shape[1]))

    def correlation(rows: Float[Tensor, "text layer head"]) -> float:
        return float(np.corrcoef(layers, rankdata(rows.mean(dim=0).flatten().numpy()))[0, 1])

    return over_shared(scored.by_text[detector], correlation, of=PIECES)


def _share(scored: ScoredHeads, detector: str, besides: str | None = None) -> Measurement:
    """Measure the share of heads for which a detector fires and the detector `besides`, if given, does not."""

    def share(rows: Float[Tensor, "text detector layer head"]) -> float:
        means = rows.mean(dim=0)
        fires = scored.over(detector, means[0])
        if besides is not None:
            fires &= ~scored.over(besides, means[1])
        return float(fires.float().mean())

    fires = scored.fires(detector)
    rows = scored.texts(detector, *([] if besides is None else [besides]))
    return over_shared(rows, share, of=PIECES, detail=f"{int(fires.sum())} of {fires.numel()} heads")


def _exceeded(seen: Seen, measure: str, sign: int, of: str) -> Measurement:
    if seen.without is None or not len(getattr(seen.without.unchanged, measure)):
        return Measurement(None)
    change, drawn = seen.without.change(measure), seen.without.drawn(measure)
    before = float(getattr(seen.without.unchanged, measure).mean())
    others = before + drawn.mean(dim=0)
    words = f"{float(others.mean()):.3g}, {float(others.min()):.3g} to {float(others.max()):.3g}"
    detail = f"{before:.3g} becomes {before + float(change.mean()):.3g}; with others removed {words}"
    rows = sign * (change[:, None] - drawn)  # [text draw]
    return over_shared(rows, lambda rows: (rows.mean(dim=0) > 0).float().mean(), of=of, detail=detail)


PAPER, INDUCTION = "anchor functions, 5.5, Fig 17 and 28", "anchor functions, 5.6"


@claim(PAPER, "rather common", at_least(0.05))
def shift_heads(seen: Seen) -> Measurement:
    """Heads that shift are common.

    Share of heads that, on English, give over half of their attention to the token at a distance of 1 to 8.
    """
    return _share(seen.english, "shift")


@claim(PAPER, "rather common", at_least(0.05))
def broadcast_heads(seen: Seen) -> Measurement:
    """Heads that broadcast are common.

    Share of heads that, on English, give one position over half of the attention not given to the first token.
    """
    return _share(seen.english, "broadcast", besides="first token")


@claim(PAPER, "mostly shift in the first few layers", at_most(-0.2))
def shift_shallow(seen: Seen) -> Measurement:
    """Shallow layers favour shift.

    Rank correlation, over heads, of the layer with the shift score on English.
    """
    return _rank_correlation(seen.english, "shift")


@claim(PAPER, "mostly broadcast in the later layers", at_least(0.2))
def broadcast_deep(seen: Seen) -> Measurement:
    """Deep layers favour broadcast from a token other than the first.

    Rank correlation, over heads, of layer and broadcast score on English, excluding the first token as source.
    """
    return _rank_correlation(seen.english, "broadcast")


@claim(PAPER, "mostly broadcast in the later layers", at_least(0.2))
def any_source_deep(seen: Seen) -> Measurement:
    """Deep layers favour broadcast if the first token counts as its source.

    Rank correlation, over heads, of the layer with the broadcast score on English, from any token.
    """
    return _rank_correlation(seen.english, "any source")


@claim("our own question", "no value: the first token is not told apart", at_least(0.5), own=True)
def deep_source_is_first(seen: Seen) -> Measurement:
    """Broadcast by heads of deep layers is mostly from the first token.

    Share of pieces of English in which a head's source is the first token, over the heads that broadcast from any token
    in the last third of the layers.
    """
    english = seen.english
    first = len(english.distance) - third(len(english.distance))
    deep = english.fires("any source")[first:]
    if not bool(deep.any()):
        return Measurement(None)
    with_it, without_it = (_rank_correlation(english, one).value for one in ("any source", "broadcast"))
    detail = f"{int(deep.sum())} of {deep.numel()} heads"
    if with_it is not None and without_it is not None:
        detail += (
            f"; rank correlation of broadcast with the layer {with_it:.3g} with this token, {without_it:.3g} without"
        )
    return over(english.from_first[:, first:][:, deep].float().mean(dim=1), of=PIECES, detail=detail)


@claim(PAPER, "highly similar", at_least(0.1))
def similar_deep(seen: Seen) -> Measurement:
    """Attention patterns of deep layers are highly similar.

    Cosine between the patterns of two heads of a layer on English, last third of the layers minus first third.
    """
    part, cosines = third(len(seen.english.distance)), seen.english.similarity
    first, last = cosines[:, :part].mean(dim=1), cosines[:, -part:].mean(dim=1)
    detail = f"{float(first.mean()):.3g} in the first third, {float(last.mean()):.3g} in the last"
    return over(last - first, of=PIECES, detail=detail)


# "performance remains almost unaffected upon the removal of several consecutive layers that are near the final output"
# does not say which layers, so the group that costs least counts
@claim("anchor functions, 5.5", "performance remains almost unaffected", at_most(0.1))
def deep_removable(seen: Seen) -> Measurement:
    """Several consecutive layers near the output can be removed.

    Increase of the loss on English, in nats per token, without a group of consecutive layers; smallest over all groups
    in the last third that keep the last layer.
    """
    layers = len(seen.english.distance)
    deep = [layer for layer in seen.losses_without if layer >= layers - third(layers)]
    if not deep:
        return Measurement(None)
    costs = torch.stack([seen.losses_without[layer] - seen.losses for layer in deep], dim=1)
    means = costs.mean(dim=0)
    cheapest, dearest = int(means.argmin()), int(means.argmax())
    detail = (
        f"from layer {deep[cheapest]} on; at most {float(means[dearest]):.3g}, from layer {deep[dearest]} on; "
        f"{float(seen.losses.mean()):.3g} before"
    )
    return over(costs[:, cheapest], of=PIECES, detail=detail)


@claim("anchor functions, 5.5", "important", at_least(0.95))
def shift_matters(seen: Seen) -> Measurement:
    """What the model predicts rests on the heads that shift.

    Share of random draws of as many other heads whose removal raises the loss on English less than removing the heads
    that shift.
    """
    return _exceeded(seen, "text_loss", 1, PIECES)


@claim(INDUCTION, "induction head", at_least(0.5))
def induction_heads(seen: Seen) -> Measurement:
    """Some heads are induction heads.

    Largest induction score of a head on repeated random tokens.
    """
    layer, head = seen.repeated.strongest("induction")
    count, total = len(seen.repeated.heads("induction")), seen.repeated.distance.numel()
    detail = f"head {layer}.{head}; {count} of {total} heads over half"
    return over(seen.repeated.by_text["induction"][:, layer, head], of=SEQUENCES, detail=detail)


@claim("stacked attention heads, 8.2", "the first relevant head connects a token with the one before", at_least(1))
def previous_token_first(seen: Seen) -> Measurement:
    """A head that attends to the previous token comes before the first induction head, farther than by chance.

    Layers from the first head that shifts by one to the first induction head, on repeated random tokens, minus the
    distance that {BEATEN:g} of random placements of as many heads do not exceed.
    """
    repeated = seen.repeated
    by_one = torch.where(repeated.distance == 1, repeated.by_text["shift"], 0)
    rows = torch.stack([by_one, repeated.by_text["induction"]], dim=1)

    def firsts(rows: Float[Tensor, "text kind layer head"]) -> tuple[int, int, int] | None:
        """Return the first layer of each kind of head, and the distance reached by chance; None without both."""
        shifts, induces = rows.mean(dim=0)
        previous, induction = repeated.over("shift", shifts).nonzero(), repeated.over("induction", induces).nonzero()
        if not len(previous) or not len(induction):
            return None
        chance = reached_by_chance(*by_one.shape[1:], len(previous), len(induction), BEATEN)
        return int(previous[0, 0]), int(induction[0, 0]), chance

    def beyond(rows: Float[Tensor, "text kind layer head"]) -> float:
        previous, induction, chance = firsts(rows) or (nan, nan, nan)
        return induction - previous - chance

    found = firsts(rows)
    if found is None:
        return Measurement(None)
    detail = "layers {} and {}; {} by chance".format(*found)
    return over_shared(rows, beyond, of=SEQUENCES, detail=detail)


@claim("stacked attention heads, 8.2", "the first head enables the subsequent ones", at_least(0.95))
def shift_feeds_induction(seen: Seen) -> Measurement:
    """Induction heads rest on the heads that shift.

    Share of random draws of as many other heads whose removal lowers the induction heads' mean score less than removing
    the heads that shift.
    """
    return _exceeded(seen, "induction", -1, SEQUENCES)


@claim("stacked attention heads, 8.2", "the first head enables the subsequent ones", at_least(0.95))
def shift_matters_for_repetition(seen: Seen) -> Measurement:
    """Repetition is predicted by way of the heads that shift.

    Share of random draws of as many other heads whose removal lowers the probability of repeated random tokens less
    than removing the heads that shift.
    """
    return _exceeded(seen, "repeated", -1, SEQUENCES)


OF_LLAMA = ("shift-heads", "broadcast-heads", "shift-shallow", "broadcast-deep", "any-source-deep", "similar-deep")

STUDY = Study(
    "language/heads",
    __doc__,
    measures_in(__name__),
    draws=[figures, tables, lambda observed: observed.view],
    profiles={
        "paper": Profile(
            Setting("meta-llama/Llama-2-7b-hf"),
            "The paper's model, Llama 2 with 32 layers of 32 heads; the paper shows one sentence and no numbers.",
            paper=(*OF_LLAMA, "deep-removable"),
        ),
        "quick": Profile(
            Setting(),
            "SmolLM2-135M-Instruct, quantised to 4 bits (Q4_1), 30 layers of 9 heads, a fiftieth of the size of the "
            "paper's Llama 2.",
        ),
    },
    smoke=Setting(TINY, None, 24, 4, 8, 3, 2, 2, 1),
    observe=observe,
)
