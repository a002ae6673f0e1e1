"""Heads of a language model: which of them shift, broadcast, attend to the first token, match and induce.

Nothing is trained. On pieces of ordinary English, and on random tokens that are repeated once, every head of a
pretrained model gets a score for each thing that heads do in the small models: shift by some distance, broadcast from
one position, attend to the first token, to itself or to all tokens alike, to earlier copies of a token (matching) or to
what followed them (induction). A head that attends to the first token is not counted as broadcasting: language models
leave their attention there while a head has nothing to do. Each score is shown beside chance and beside the same
architecture with random weights. The heads that shift are then removed, against as many others drawn at random, and so
are groups of consecutive layers.

Source: anchor functions, section 5.5 and 5.6, Figures 17 and 28; stacked attention heads, section 8.2.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan

import torch
from jaxtyping import Int
from scipy.stats import spearmanr
from torch import Tensor

from anchorlab.engine import Status
from anchorlab.findings import at_least, at_most
from anchorlab.language import LanguageModel
from anchorlab.language.encode import windows
from anchorlab.language.page import english_page
from anchorlab.language.repeated import repeated_tokens
from anchorlab.language.start import start_token
from anchorlab.studies.claim import Measurement, claim, measures_in, over
from anchorlab.studies.language.head_scores import ScoredHeads, score_heads
from anchorlab.studies.language.heads_figures import Examples, examples, figures, tables
from anchorlab.studies.language.opening import TINY, ModelSetting, described, open_model, untrained_model
from anchorlab.studies.language.removal import (
    RepeatedTexts,
    WithoutHeads,
    loss_without_layers,
    text_loss,
    without_heads,
)
from anchorlab.studies.study import Analysis, Profile, Study
from anchorlab.studies.workplace import Workplace
from anchorlab.viewer import AttentionView, read_texts


@dataclass(frozen=True)
class Setting(ModelSetting):
    """The texts, and what is removed.

    Fields
        length: tokens in a piece of English
        texts: the number of pieces at most; each is preceded by the token between documents, if the model has one
        half: random tokens before they are repeated
        sequences: sequences of repeated random tokens
        removal_texts: how many of the pieces, and of the sequences, are predicted without heads or layers
        draws: how many times as many other heads are drawn
        layers: how many consecutive layers are removed
    """

    length: int = 64
    texts: int = 40
    half: int = 32
    sequences: int = 16
    removal_texts: int = 8
    draws: int = 20
    layers: int = 3


@dataclass(frozen=True)
class Seen:
    """What the claims are measured on.

    Fields
        english, repeated: the scores of all heads on English and on repeated random tokens
        loss: on English, per token
        loss_without: without consecutive layers, by the first of them, the deepest first
        without: without the heads that shift on English; None where no head does, and for an untrained model
    """

    english: ScoredHeads
    repeated: ScoredHeads
    loss: float
    loss_without: dict[int, float]
    without: WithoutHeads | None = None


@dataclass(frozen=True)
class Observed:
    """A model, the same architecture without training, and what figures and the viewer show of the model."""

    seen: Seen
    untrained: Seen
    examples: Examples
    model: str
    view: AttentionView


def _rank_correlation(scored: ScoredHeads, detector: str) -> Measurement:
    scores = scored.scores[detector]
    if len(scores) == 1 or not bool((scores != scores[0, 0]).any()):
        return Measurement(None)  # nothing is in an order
    layers = torch.arange(len(scores)).unsqueeze(1).expand_as(scores)
    return Measurement(float(spearmanr(layers.flatten().numpy(), scores.flatten().numpy()).statistic))


def _share(scored: ScoredHeads, detector: str) -> Measurement:
    fires = scored.fires(detector)
    return Measurement(float(fires.float().mean()), detail=f"{int(fires.sum())} of {fires.numel()} heads")


def _exceeded(seen: Seen, measure: str, sign: int) -> Measurement:
    if seen.without is None or isnan(getattr(seen.without.unchanged, measure)):
        return Measurement(None)
    mean, low, high = seen.without.drawn(measure)
    before, after = (getattr(one, measure) for one in (seen.without.unchanged, seen.without.without))
    detail = f"{before:.3g} becomes {after:.3g}; with others removed {mean:.3g}, {low:.3g} to {high:.3g}"
    return over(seen.without.exceeded(measure, sign), of="draws", detail=detail)


PAPER, INDUCTION = "anchor functions, 5.5, Fig 17 and 28", "anchor functions, 5.6"


@claim("Heads that shift are common", at=PAPER, paper="rather common", band=at_least(0.05))
def shift_heads(seen: Seen) -> Measurement:
    """Share of heads that, on English, give over half of their attention to the token at a distance of 1 to 8."""
    return _share(seen.english, "shift")


@claim("Heads that broadcast are common", at=PAPER, paper="rather common", band=at_least(0.05))
def broadcast_heads(seen: Seen) -> Measurement:
    """Share of heads that, on English, give over half of what the first token does not get to one other position."""
    return _share(seen.english, "broadcast")


@claim("Shallow layers favour shift", at=PAPER, paper="mostly shift in the first few layers", band=at_most(-0.2))
def shift_shallow(seen: Seen) -> Measurement:
    """Rank correlation, over heads, of the layer with the score of shift on English."""
    return _rank_correlation(seen.english, "shift")


@claim("Deep layers favour broadcast", at=PAPER, paper="mostly broadcast in the later layers", band=at_least(0.2))
def broadcast_deep(seen: Seen) -> Measurement:
    """Rank correlation, over heads, of the layer with the score of broadcast on English, the first token left out."""
    return _rank_correlation(seen.english, "broadcast")


@claim(
    "Deep layers favour broadcast if the first token counts as its source",
    at=PAPER,
    paper="mostly broadcast in the later layers",
    band=at_least(0.2),
)
def any_source_deep(seen: Seen) -> Measurement:
    """Rank correlation, over heads, of the layer with the score of broadcast on English from any token."""
    return _rank_correlation(seen.english, "any source")


@claim("Attention patterns of deep layers are highly similar", at=PAPER, paper="highly similar", band=at_least(0.1))
def similar_deep(seen: Seen) -> Measurement:
    """Cosine between the patterns of two heads of a layer on English, last third of the layers minus the first."""
    similarity = seen.english.similarity
    third = max(len(similarity) // 3, 1)
    first, last = float(similarity[:third].mean()), float(similarity[-third:].mean())
    return Measurement(last - first, detail=f"{first:.3g} in the first third, {last:.3g} in the last")


@claim(
    "Several consecutive layers near the output can be removed",
    at="anchor functions, 5.5",
    paper="performance remains almost unaffected",
    band=at_most(0.1),
)
def deep_removable(seen: Seen) -> Measurement:
    """Increase of the loss on English, in nats per token, without the consecutive layers before the last one."""
    if not seen.loss_without:
        return Measurement(None)
    deepest = max(seen.loss_without)
    return Measurement(
        seen.loss_without[deepest] - seen.loss, detail=f"from layer {deepest} on; {seen.loss:.3g} before"
    )


@claim(
    "What the model predicts rests on the heads that shift",
    at="anchor functions, 5.5",
    paper="important",
    band=at_least(0.95),
)
def shift_matters(seen: Seen) -> Measurement:
    """Share of draws of as many other heads whose removal raises the loss on English less."""
    return _exceeded(seen, "text_loss", 1)


@claim("Some heads are induction heads", at=INDUCTION, paper="induction head", band=at_least(0.5))
def induction_heads(seen: Seen) -> Measurement:
    """Largest score of induction on repeated random tokens."""
    scores = seen.repeated.scores["induction"]
    count = len(seen.repeated.heads("induction"))
    return Measurement(float(scores.max()), detail=f"{count} of {scores.numel()} heads over half")


@claim(
    "A head that attends to the previous token comes before the first induction head",
    at="stacked attention heads, 8.2",
    paper="the first relevant head connects a token with the one before",
    band=at_least(1),
)
def previous_token_first(seen: Seen) -> Measurement:
    """Layers from the first head that shifts by one to the first induction head, on repeated random tokens."""
    previous = [head for head in seen.repeated.heads("shift") if int(seen.repeated.distance[head]) == 1]
    induction = seen.repeated.heads("induction")
    if not previous or not induction:
        return Measurement(None)
    (first, _), (second, _) = previous[0], induction[0]
    return Measurement(second - first, detail=f"layers {first} and {second}")


@claim(
    "Induction heads rest on the heads that shift",
    at="stacked attention heads, 8.2",
    paper="the first head enables the subsequent ones",
    band=at_least(0.95),
)
def shift_feeds_induction(seen: Seen) -> Measurement:
    """Share of draws of as many other heads whose removal lowers the induction heads' mean score less."""
    return _exceeded(seen, "induction", -1)


@claim(
    "Repetition is predicted by way of the heads that shift",
    at="stacked attention heads, 8.2",
    paper="the first head enables the subsequent ones",
    band=at_least(0.95),
)
def shift_matters_for_repetition(seen: Seen) -> Measurement:
    """Share of draws of as many other heads whose removal lowers the probability of repeated random tokens less."""
    return _exceeded(seen, "repeated", -1)


def observe(setting: Setting, workplace: Workplace) -> Observed:
    """Score the heads of the setting's model and of an untrained one, and remove heads and layers of the model."""
    model = open_model(setting, workplace)
    english, repeated = texts(setting, model)
    groups = layer_groups(len(model.blocks), setting.layers)
    tokens = english.numel() + repeated.inputs.numel()
    one = setting.removal_texts * (english.shape[1] + repeated.inputs.shape[1])
    show = _Progress(workplace, 2 * tokens + (setting.draws + 2) * one + (len(groups) + 3) * one // 2)
    untrained = untrained_model(model)
    english_heads, repeated_heads = (show.scored(model, inputs) for inputs in (english, repeated.inputs))
    random_heads = [show.scored(untrained, inputs) for inputs in (english, repeated.inputs)]
    few = english[: setting.removal_texts]
    loss, without_layers = _without_layers(model, few, groups, show)
    random_loss, random_without = _without_layers(untrained, few, groups[:1], show)
    without = None
    if removed := english_heads.heads("shift"):
        half = RepeatedTexts(repeated.inputs[: setting.removal_texts], setting.half)
        found = repeated_heads.heads("induction")
        without = without_heads(
            model, few, half, removed, found, setting.draws, lambda done: show.step(one, "without heads")
        )
    return Observed(
        Seen(english_heads, repeated_heads, loss, without_layers, without),
        Seen(random_heads[0], random_heads[1], random_loss, random_without),
        examples(model, english_heads, english),
        described(setting, model),
        view_of(model, english[0]),
    )


def view_of(model: LanguageModel, ids: Int[Tensor, "position"]) -> AttentionView:
    """Return all heads on a piece of English, for the report's viewer."""
    assert model.tokenizer is not None  # the piece is from its tokenizer
    return read_texts(model, str(model.tokenizer.decode(ids.tolist())), f"Attention of {model.name} on English").view


def texts(setting: Setting, model: LanguageModel) -> tuple[Int[Tensor, "batch position"], RepeatedTexts]:
    """Return pieces of English, and repeated random tokens, as ids; both behind the token between documents."""
    tokenizer, start = model.tokenizer, start_token(model.tokenizer)
    pieces = windows(tokenizer, english_page().text, setting.length, model.context)[: setting.texts]
    if start is not None:
        pieces = torch.cat([torch.full((len(pieces), 1), start), pieces], dim=1)
    assert tokenizer is not None  # windows refuses a model without one
    excluded = tokenizer.all_special_ids
    drawn = repeated_tokens(len(tokenizer), setting.sequences, setting.half, 0, excluded, start)
    return pieces, RepeatedTexts(drawn, setting.half)


def layer_groups(layers: int, size: int) -> list[range]:
    """Return groups of consecutive layers without the last layer, the deepest group first."""
    return [range(first, first + size) for first in range(layers - 1 - size, -1, -size)]


def _without_layers(
    model: LanguageModel, text: Tensor, groups: Sequence[range], show: "_Progress"
) -> tuple[float, dict[int, float]]:
    found = {}
    loss = text_loss(model, text)
    for group in groups:
        found[group.start] = loss_without_layers(model, text, group)
        show.step(text.numel(), "without layers")
    return loss, found


class _Progress:
    """Progress in tokens that went through a model."""

    def __init__(self, workplace: Workplace, total: int) -> None:
        self.workplace, self.total, self.done = workplace, total, 0

    def step(self, tokens: int, label: str) -> None:
        self.done = min(self.done + tokens, self.total)
        self.workplace.report(Status(self.total, self.done, label))

    def scored(self, model: LanguageModel, inputs: Tensor) -> ScoredHeads:
        """Score the heads of a model, with progress."""
        before = self.done

        def report(texts: int) -> None:
            self.step(before + texts * inputs.shape[1] - self.done, f"heads of {model.name}")

        return score_heads(model, inputs, report)


def analyse(observed: Observed, setting: Setting) -> Analysis:
    """Draw the maps of scores, the patterns of Figure 17, and what is lost without layers."""
    seen = observed.seen
    return Analysis(
        seen,
        figures(seen.english, seen.repeated, seen.loss, seen.loss_without, setting.layers, observed.examples),
        tables(seen.english, seen.repeated, observed.untrained.english, seen.without, observed.examples),
        views=[observed.view],
        seeds="0",
        model=observed.model,
        untrained=observed.untrained,
    )


OF_LLAMA = ("shift-heads", "broadcast-heads", "shift-shallow", "broadcast-deep", "any-source-deep", "similar-deep")

STUDY = Study(
    name="language/heads",
    doc=__doc__,
    claims=measures_in(__name__),
    analyse=analyse,
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
