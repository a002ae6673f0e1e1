"""What every execution computes for one member: a forward pass at the scored positions and its mean loss."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from anchorlab.models.model import predict
from anchorlab.tasks.task import LossKind, loss_per_position
from anchorlab.training.feed import MemberBatches


@runtime_checkable
class Execution(Protocol):
    """A way to take one optimiser step with all members; which one ran never changes a member's result.

    In float64 weights agree to 1e-10. In float32 they agree within rounding, which grows along training as any
    difference does: after 30 steps of Adam at a learning rate of 1e-3, losses to a relative 1e-4 and weights to 3e-4.
    """

    name: str

    def step(self, batches: MemberBatches, factor: float, active: Sequence[bool], step: int) -> None:
        """Updates the weights in place; `factor` multiplies the learning rates, a member that is not active rests."""


def mean_loss(outputs: Tensor, targets: Tensor, weights: Tensor | None, kind: LossKind) -> Tensor:
    """The loss averaged over all scored positions of a batch."""
    losses = loss_per_position(kind, outputs, targets)
    if weights is None:
        return losses.mean()
    # a batch in which nothing is scored teaches nothing, rather than dividing by zero
    return (losses * weights).sum() / weights.sum().clamp(min=torch.finfo(weights.dtype).tiny)


def forward_loss(
    module: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    positions: Tensor,
    scored: Tensor | None,
    kind: LossKind,
    mixed: bool,
    weights: Mapping[str, Tensor] | None = None,
) -> Tensor:
    """One member's loss; under `mixed`, matrix products run in bfloat16 and the loss in float32."""
    with autocast(inputs.device, mixed):
        outputs = predict(module, inputs, positions, weights)
    return mean_loss(outputs.float() if mixed else outputs, targets, scored, kind)


def autocast(device: torch.device, mixed: bool) -> AbstractContextManager[object]:
    """Torch's bfloat16 autocast when `mixed`, else nothing."""
    return torch.autocast(device.type, torch.bfloat16) if mixed else nullcontext()
