"""The loss at each scored position, and the metrics that task families share."""

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

LossKind = Literal["cross_entropy", "mean_squared_error"]

Losses = Callable[
    [Float[Tensor, "batch scored output"], Shaped[Tensor, "batch scored *output"]], Float[Tensor, "batch scored"]
]
"""A task's `losses`: the loss at each scored position from outputs and targets."""


def loss_per_position(
    kind: LossKind, outputs: Float[Tensor, "batch scored output"], targets: Shaped[Tensor, "batch scored *output"]
) -> Float[Tensor, "batch scored"]:
    """Return the loss at each scored position.

    `cross_entropy`, in nats, takes ids `[batch scored]` or distributions `[batch scored output]` as targets;
    `mean_squared_error` takes vectors `[batch scored output]` and averages over their coordinates.
    """
    if kind == "mean_squared_error":
        return (outputs - targets).square().mean(dim=-1)
    log_probabilities = torch.log_softmax(outputs, dim=-1)
    if targets.is_floating_point():
        return -(targets * log_probabilities).sum(dim=-1)
    return -log_probabilities.gather(-1, targets.unsqueeze(-1)).squeeze(-1)


def correct(
    outputs: Float[Tensor, "batch scored output"], answers: Int[Tensor, "batch scored"]
) -> Float[Tensor, "batch scored"]:
    """Return 1 where the most probable token is the answer, 0 elsewhere."""
    return (outputs.argmax(dim=-1) == answers).to(outputs.dtype)


def probability(
    outputs: Float[Tensor, "batch scored output"], tokens: Int[Tensor, "batch scored"]
) -> Float[Tensor, "batch scored"]:
    """Return the probability that the outputs (logits) give to each token."""
    return torch.softmax(outputs, dim=-1).gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
