"""The loss of a pretrained model on ordinary text."""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from anchorlab.language.answers import device_of
from anchorlab.language.encode import TokenisedTexts
from anchorlab.language.model import LanguageModel
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
    some = torch.split(inputs.to(device_of(model)), _AT_ONCE)
    found = [next_token_losses(predict(model, texts, None, weights)[:, :-1], texts[:, 1:]) for texts in some]
    losses = torch.cat(found).cpu()
    if lengths is not None:
        padding = torch.arange(1, inputs.shape[1]) >= lengths.cpu().unsqueeze(1)
        losses = losses.masked_fill(padding, torch.nan)
    return losses
