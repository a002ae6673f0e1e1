"""What `language/heads` observes: the texts, the scores of all heads, and predictions without heads or layers."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorlab.language import LanguageModel
from anchorlab.language.encode import windows
from anchorlab.language.repeated import repeated_tokens
from anchorlab.language.sample_text import english_page
from anchorlab.language.start import beginning
from anchorlab.papers.language.heads import removal
from anchorlab.papers.language.heads.examples import Examples, examples
from anchorlab.papers.language.heads.scores import ScoredHeads, score_heads
from anchorlab.papers.pretrained.opening import ModelSetting, described, open_model, untrained_model
from anchorlab.studies import ObservationContext, Observed, WorkDone
from anchorlab.viewer import AttentionView, read_texts


@dataclass(frozen=True)
class Setting(ModelSetting):
    """The texts, and the heads and layers to remove."""

    length: int = 64  # tokens in a piece of English
    # the number of pieces at most; each is preceded by the token that begins a text, if the model has one
    texts: int = 40
    half: int = 32  # random tokens before they are repeated
    sequences: int = 16  # sequences of repeated random tokens
    removal_texts: int = 16  # the number of pieces, and of sequences, that are predicted without heads or layers
    draws: int = 50  # the number of random draws of other heads
    layers: int = 3  # the number of consecutive layers to remove
    seed: int = 1000  # the seed of the random tokens and the other heads


@dataclass(frozen=True)
class Seen:
    """The data that the claims read."""

    # the scores of all heads on English and on repeated random tokens
    english: ScoredHeads
    repeated: ScoredHeads
    losses: Float[Tensor, "text"]  # loss on each piece of English, per token
    # the same without a group of consecutive layers, by its first layer
    losses_without: dict[int, Float[Tensor, "text"]]
    # predictions without the heads that shift on English; None if no head does, or for an untrained model
    without: removal.WithoutHeads | None = None


@dataclass(frozen=True, kw_only=True)
class ObservedHeads(Observed[Seen]):
    """Measurements of a model and of the same architecture without training, and what reports draw of the model."""

    examples: Examples
    view: AttentionView
    removed: int  # the number of consecutive layers that are removed together


def observe(setting: Setting, context: ObservationContext) -> ObservedHeads:
    """Score the heads of the setting's model and of an untrained one, and remove heads and layers of the model."""
    model = open_model(setting, context)
    english, repeated = texts(setting, model)
    # every group of consecutive layers without the last layer
    groups = [range(first, first + setting.layers) for first in range(len(model.blocks) - setting.layers)]
    tokens = english.numel() + repeated.inputs.numel()
    one = setting.removal_texts * (english.shape[1] + repeated.inputs.shape[1])
    deep = [group for group in groups if group.start >= len(model.blocks) - third(len(model.blocks))]
    show = WorkDone(context, 2 * tokens + (setting.draws + 2) * one + (len(groups) + len(deep) + 2) * one // 2)
    untrained = untrained_model(model)
    english_heads, repeated_heads = (_scored(model, inputs, show) for inputs in (english, repeated.inputs))
    random_heads = [_scored(untrained, inputs, show) for inputs in (english, repeated.inputs)]
    few = english[: setting.removal_texts]
    loss, without_layers = _without_layers(model, few, groups, show)
    random_loss, random_without = _without_layers(untrained, few, deep, show)
    without = None
    if removed := english_heads.heads("shift"):
        half = removal.RepeatedTexts(repeated.inputs[: setting.removal_texts], setting.half)
        found = repeated_heads.heads("induction")
        without = removal.without_heads(
            model, few, half, removed, found, setting.draws, setting.seed, lambda done: show.step("without heads", one)
        )
    return ObservedHeads(
        seen=Seen(english_heads, repeated_heads, loss, without_layers, without),
        untrained=Seen(random_heads[0], random_heads[1], random_loss, random_without),
        model=described(setting, model),
        seeds=str(setting.seed),
        examples=examples(model, english_heads, english),
        view=view_of(model, english[0]),
        removed=setting.layers,
    )


def third(layers: int) -> int:
    """Return a third of a number of layers, rounded down, at least 1."""
    return max(layers // 3, 1)


def view_of(model: LanguageModel, ids: Int[Tensor, "position"]) -> AttentionView:
    """Return the attention of all heads on a piece of English, for the report's viewer."""
    assert model.tokenizer is not None  # the piece is from its tokenizer
    return read_texts(model, str(model.tokenizer.decode(ids.tolist())), f"Attention of {model.name} on English").view


def texts(setting: Setting, model: LanguageModel) -> tuple[Int[Tensor, "batch position"], removal.RepeatedTexts]:
    """Return pieces of English, and repeated random tokens, as ids, both after the beginning-of-text token."""
    tokenizer, start = model.tokenizer, beginning(model.tokenizer)
    pieces = windows(tokenizer, english_page().text, setting.length, model.context)[: setting.texts]
    if start is not None:
        pieces = torch.cat([torch.full((len(pieces), 1), start), pieces], dim=1)
    assert tokenizer is not None  # windows refuses a model without one
    excluded = tokenizer.all_special_ids
    drawn = repeated_tokens(len(tokenizer), setting.sequences, setting.half, setting.seed, excluded, start)
    return pieces, removal.RepeatedTexts(drawn, setting.half)


def _without_layers(
    model: LanguageModel, text: Tensor, groups: Sequence[range], show: WorkDone
) -> tuple[Tensor, dict[int, Tensor]]:
    found, whole = {}, removal.losses(model, text)
    for group in groups:
        found[group.start] = removal.losses_without_layers(model, text, group)
        show.step("without layers", text.numel())
    return whole, found


def _scored(model: LanguageModel, inputs: Tensor, show: WorkDone) -> ScoredHeads:
    before = show.done

    def report(texts: int) -> None:
        show.step(f"heads of {model.name}", before + texts * inputs.shape[1] - show.done)

    return score_heads(model, inputs, report)
