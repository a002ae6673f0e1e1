"""The loss of a pretrained model on ordinary text."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from anchorlab.language.encode import TokenisedTexts, tokenise
from anchorlab.language.model import LanguageModel
from anchorlab.language.start import beginning
from anchorlab.models.model import Weights, predict
from anchorlab.models.precision import at_least_float32

_AT_ONCE = 4  # texts per pass, because their logits are large


def next_token_losses(
    logits: Float[Tensor, "batch scored output"], targets: Int[Tensor, "batch scored"]
) -> Float[Tensor, "batch scored"]:
    """Return -log p of the token that follows each position; one text at a time, because logits are large."""
    rows = zip(logits, targets, strict=True)
    return torch.stack([cross_entropy(at_least_float32(row), target, reduction="none") for row, target in rows])


@torch.no_grad()
def text_losses(
    model: LanguageModel, inputs: Int[Tensor, "batch position"] | TokenisedTexts, weights: Weights | None = None
) -> Float[Tensor, "batch following"]:
    """Return -log p of every token after the first, given the tokens before it; `exp` of the mean is the perplexity.

    Args:
        model: a pretrained model
        inputs: token ids of texts of one length, such as `windows` returns; or texts from `LanguageModel.tokenise`,
            where the losses of padding are NaN
        weights: replacements for some of the model's weights, by name; None: none
    """
    lengths = None
    if isinstance(inputs, TokenisedTexts):
        lengths, inputs = inputs.lengths, inputs.inputs
    some = torch.split(inputs.to(model.device), _AT_ONCE)
    found = [next_token_losses(predict(model, texts, None, weights)[:, :-1], texts[:, 1:]) for texts in some]
    losses = torch.cat(found).cpu()
    if lengths is not None:
        padding = torch.arange(1, inputs.shape[1]) >= lengths.cpu().unsqueeze(1)
        losses = losses.masked_fill(padding, torch.nan)
    return losses


class TextBits(NamedTuple):
    """The bits of texts under a model: per token, per character and per byte of UTF-8.

    Tokens differ between tokenizers; bits per character or byte compare models with different ones.
    """

    per_token: Float[Tensor, "text"]
    per_character: Float[Tensor, "text"]
    per_byte: Float[Tensor, "text"]


def text_bits(model: LanguageModel, texts: Sequence[str], weights: Weights | None = None) -> TextBits:
    """Return -log2 p of each text, per token, character and byte.

    The token that begins a text, such as `<bos>`, comes first, so that the whole text is predicted. For a tokenizer
    without one, the first token of the text is given and not counted.

    Args: as in `text_losses`.
    Errors: as `LanguageModel.tokenise`.
    """
    start = beginning(model.tokenizer)
    read = tokenise(model.tokenizer, texts, model.context, start)
    bits = text_losses(model, read, weights).double() / math.log(2)
    assert model.tokenizer is not None  # tokenise refuses a model without one
    counts = []
    for text, ids, length in zip(texts, read.inputs.tolist(), read.lengths.tolist(), strict=True):
        first = str(model.tokenizer.decode(ids[:1]))  # a text may write the start itself, which is not predicted
        said = text.removeprefix(first) if ids[0] == start else str(model.tokenizer.decode(ids[1:length]))
        counts.append((length - 1, len(said), len(said.encode())))
    sizes = torch.tensor(counts, dtype=torch.float64).T
    return TextBits(*(bits.nansum(dim=1) / size for size in sizes))
