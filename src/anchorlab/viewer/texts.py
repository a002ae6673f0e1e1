"""Measure the heads of a language model on given texts: a table of the detectors' scores, and a view."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.findings.view import AttentionView, weights_of
from anchorlab.language import LanguageModel
from anchorlab.language.weight_holders import Heads
from anchorlab.lens import HeadScores, best_source, detect, look, threshold, uniform_attention
from anchorlab.tasks.batch import Example, Token
from anchorlab.viewer.make import MOST_RECORDED, head_labels, head_scores

if TYPE_CHECKING:
    import polars

_PATTERNS = "blocks.{}.attn.hook_pattern"
_FEWEST = 4  # tokens; in shorter texts, the first half without the first token is too short to broadcast from


@dataclass(frozen=True)
class TextHeads:
    """The heads of a language model on some texts.

    Fields
        found: the table of `detect`, with the detector `broadcast` in addition: it scores each text's most attended
            position other than the first token. It does not fire for heads that attend to the first token.
        view: the patterns, with the token that the model predicts after each text
    """

    found: "polars.DataFrame"
    view: AttentionView


def read_texts(model: LanguageModel, texts: str | Sequence[str], title: str | None = None) -> TextHeads:
    """Run a language model (`anchorlab.pretrained`) on texts; return the detectors' table and the view of its heads.

    The view's `title` is by default the name of the model.

    Errors: as `LanguageModel.tokenise`; `SpecError` if no text has two tokens, and for a view above 64 MiB.
    """
    given = [texts] if isinstance(texts, str) else list(texts)
    tokens = model.tokenise(given)
    lengths: list[int] = tokens.lengths.tolist()
    attention = model.blocks[0].attn
    assert isinstance(attention, Heads)
    layers, heads = len(model.blocks), attention.heads
    if max(lengths) < 2:
        raise SpecError("texts", "each is a single token, which leaves attention no choice", "write more words")
    if 2 * layers * heads * sum(weights_of(length, causal=True) for length in lengths) > MOST_RECORDED:
        raise SpecError("texts", f"{sum(lengths)} tokens make a page above 64 MiB", "give fewer or shorter texts")
    names = [_PATTERNS.format(layer) for layer in range(layers)]
    record = look(model, tokens.inputs.to(model.device), names, positions=tokens.lengths.unsqueeze(1) - 1)
    patterns = torch.stack([record[name][0].float() for name in names])
    found = _with_broadcast(detect(record, lengths=tokens.lengths), patterns, tokens.lengths)
    view = AttentionView.of(
        title or f"Attention of {model.name}",
        [
            Example(tuple(Token(word, "token") for word in model.words(row[:length])), (), "", "")
            for row, length in zip(tokens.inputs, lengths, strict=True)
        ],
        [0],
        patterns.transpose(0, 1)[None, None],
        members=[model.name],
        predicted=[[model.words(record["output"][0, :, 0].argmax(-1))]],
        labels=head_labels([found]),
        causal=True,
        scores=head_scores([found]),
    )
    return TextHeads(found, view)


def _with_broadcast(
    found: "polars.DataFrame",
    patterns: Float[Tensor, "layer batch head query key"],
    lengths: Int[Tensor, "batch"],
) -> "polars.DataFrame":
    """Return the table `found` with rows of the detector `broadcast`; unchanged if all texts are too short for it."""
    import polars as pl

    length = int(lengths.max())
    random = uniform_attention(length).expand(1, len(lengths), 1, length, length)
    scores, by_chance = (_broadcast(given, lengths) for given in (patterns, random))
    if not scores.weights.any():
        return found
    values, chance, (low, high) = scores.mean, float(by_chance.mean), scores.interval
    grid = torch.cartesian_prod(*(torch.arange(size) for size in values.shape)).reshape(-1, 2)
    sinks = found.filter((pl.col("detector") == "first_token") & pl.col("fires")).select("layer", "head").rows()
    rows = pl.DataFrame(
        {
            "member": [0] * len(grid),
            "layer": grid[:, 0].tolist(),
            "head": grid[:, 1].tolist(),
            "detector": ["broadcast"] * len(grid),
            "offset": [None] * len(grid),
            "value": values.flatten().tolist(),
            "chance": [chance] * len(grid),
            "low": low.flatten().tolist(),
            "high": high.flatten().tolist(),
            "fires": (values > threshold(chance)).flatten().tolist(),
        },
        schema=found.schema,
    )
    is_sink = pl.struct("layer", "head").is_in([{"layer": layer, "head": head} for layer, head in sinks])
    return pl.concat([found, rows.with_columns(fires=pl.col("fires") & ~is_sink)])


def _broadcast(patterns: Float[Tensor, "layer batch head query key"], lengths: Int[Tensor, "batch"]) -> HeadScores:
    """Score broadcasting from the best source in each text; texts shorter than `_FEWEST` have weight 0."""
    values = patterns.new_zeros(patterns.shape[:3])
    for text, length in enumerate(lengths.tolist()):
        if length >= _FEWEST:
            values[:, text] = best_source(patterns[:, text, :, :length, :length], besides_first=True)[0]
    return HeadScores(values, (lengths >= _FEWEST).to(values.dtype))
