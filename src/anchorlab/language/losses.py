"""The loss of a pretrained model on ordinary text."""

from collections.abc import Mapping

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorlab.language.answers import device_of
from anchorlab.language.model import LanguageModel
from anchorlab.models.model import predict

_AT_ONCE = 4  # texts: their logits are large


@torch.no_grad()
def text_losses(
    model: LanguageModel, inputs: Int[Tensor, "batch position"], weights: Mapping[str, Tensor] | None = None
) -> Float[Tensor, "batch following"]:
    """Return -log p of every token but the first, given those before it; `exp` of the mean is the perplexity.

    Args:
        model: a pretrained model
        inputs: token ids of texts of one length, such as those of `windows`
        weights: used in place of the model's own, by name
    """
    found = []
    for texts in torch.split(inputs.to(device_of(model)), _AT_ONCE):
        scores = predict(model, texts, None, weights).log_softmax(-1)
        found.append(-scores[:, :-1].gather(2, texts[:, 1:, None])[..., 0])
    return torch.cat(found).cpu()
