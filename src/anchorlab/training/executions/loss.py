"""The loss that all executions compute: the mean over the scored positions."""

from contextlib import AbstractContextManager, nullcontext

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from anchorlab.models.model import Weights, predict
from anchorlab.tasks.metrics import Losses


def mean_loss(
    outputs: Float[Tensor, "batch scored output"],
    targets: Shaped[Tensor, "batch scored *output"],
    weights: Float[Tensor, "batch scored"] | None,
    losses: Losses,
) -> Float[Tensor, ""]:
    """Return the loss averaged over the scored positions of a batch, weighted by `weights` if given."""
    each = losses(outputs, targets)
    if weights is None:
        return each.mean()
    # a batch without scored positions has loss 0, not 0 / 0
    return (each * weights).sum() / weights.sum().clamp(min=torch.finfo(weights.dtype).tiny)


def forward_loss(
    module: nn.Module,
    inputs: Shaped[Tensor, "batch position *feature"],
    targets: Shaped[Tensor, "batch scored *output"],
    positions: Int[Tensor, "*batch scored"],
    scored: Float[Tensor, "batch scored"] | None,
    losses: Losses,
    mixed: bool,
    weights: Weights | None = None,
) -> Float[Tensor, ""]:
    """Return one member's loss: the mean of `losses` at `positions`, weighted by `scored` if given.

    `weights` are used in place of the module's own, by name. With `mixed`, matrix products run in bfloat16, and the
    loss is computed in float32.
    """
    with autocast(inputs.device, mixed):
        outputs = predict(module, inputs, positions, weights)
    return mean_loss(outputs.float() if mixed else outputs, targets, scored, losses)


def autocast(device: torch.device, mixed: bool) -> AbstractContextManager[object]:
    """Return torch's bfloat16 autocast if `mixed`, else a context that does nothing."""
    return torch.autocast(device.type, torch.bfloat16) if mixed else nullcontext()
