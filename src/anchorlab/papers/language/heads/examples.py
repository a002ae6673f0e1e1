"""Example patterns of a language model's heads, and the tokens from which heads broadcast."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorlab.findings import Map, MapFigure, Table, grid
from anchorlab.language import LanguageModel
from anchorlab.lens import best_source, look
from anchorlab.papers.language.heads.removal import Head
from anchorlab.papers.language.heads.scores import PATTERNS, ScoredHeads

SENTENCE = "My name is John. What is my name? Your name is"
"""The sentence of Figure 17."""

_SHOWN = 16  # tokens of a piece, as many as a map can label
_FREQUENT = 6  # tokens in the list of sources


@dataclass(frozen=True)
class Example:
    """Attention patterns on one text."""

    text: str  # a description of the text
    patterns: Mapping[str, Float[Tensor, "query key"]]  # by the head's role
    tokens: tuple[str, ...]


@dataclass(frozen=True)
class Examples:
    """Texts with the patterns of some heads, and the text of every token that some head broadcasts from."""

    texts: Sequence[Example]
    words: Mapping[int, str]


def examples(model: LanguageModel, english: ScoredHeads, pieces: Int[Tensor, "batch position"]) -> Examples:
    """Return the examples in the figures: patterns on two texts of the heads with the largest scores on English.

    The texts are the paper's sentence and the beginning of a piece of English: the beginning on which the head with the
    largest broadcast score broadcasts most.
    """
    chosen = {name: english.strongest(name) for name in ("shift", "broadcast", "first token")}
    layer, head = chosen["broadcast"]
    beginnings = pieces[:, :_SHOWN]
    site = PATTERNS.replace("*", str(layer))
    patterns = look(model, beginnings, [site], output=False)[site][0].float()
    piece = int(best_source(patterns, besides_first=True)[0][:, head].argmax())
    given = {"the paper's sentence": model.tokenise([SENTENCE]).inputs, "English": beginnings[piece : piece + 1]}
    used = torch.unique(english.sources)
    return Examples(
        [_example(model, text, inputs, chosen) for text, inputs in given.items()],
        dict(zip(used.tolist(), map(shown, model.words(used)), strict=True)),
    )


def _example(model: LanguageModel, text: str, inputs: Int[Tensor, "1 position"], chosen: Mapping[str, Head]) -> Example:
    sites = {head: PATTERNS.replace("*", str(head[0])) for head in chosen.values()}
    record = look(model, inputs, sorted(set(sites.values())), output=False)
    patterns = {
        f"{name}: {head_name(head)}": record[sites[head]][0, 0, head[1]].float().cpu() for name, head in chosen.items()
    }
    return Example(text, patterns, tuple(map(shown, model.words(inputs[0]))))


def shown(token: str) -> str:
    """Return a token with its spaces and line breaks visible."""
    return token.replace(" ", "␣").replace("\n", "⏎")


def head_name(head: Head) -> str:
    """Return the name of a head: its layer and its index in the layer, both from 0."""
    return f"{head[0]}.{head[1]}"


def pattern_maps(texts: Sequence[Example]) -> MapFigure:
    """Draw the patterns on each text in a row."""
    rows = tuple(
        tuple(Map(f"{name}, {one.text}", grid(found), one.tokens, one.tokens) for name, found in one.patterns.items())
        for one in texts
    )
    return MapFigure(
        title="Heads that shift, broadcast and attend to the first token (Fig 17)",
        caption="The head of each kind with the largest score on English, as layer.head. Above, the paper's sentence; "
        "below, the beginning of a piece of English, the one on which the second head broadcasts most.",
        maps=rows,
        value_range=(0.0, 1.0),
    )


def source_table(english: ScoredHeads, words: Mapping[int, str]) -> Table:
    """List the most frequent sources of the heads that broadcast, with the text of each token."""
    chosen = english.heads("broadcast") or [english.strongest("broadcast")]
    counted: Counter[int] = Counter()
    for layer, head in chosen:
        counted.update(english.sources[layer, :, head].tolist())
    rows = tuple((words[token], count / counted.total()) for token, count in counted.most_common(_FREQUENT))
    heads = ", ".join(map(head_name, chosen))
    caption = f"Share of the pieces of English in which each token is the source of {heads}."
    return Table("The tokens from which heads broadcast", caption, ("token", "share"), rows)
