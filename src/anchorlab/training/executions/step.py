"""The interface of executions, and the loss that all of them compute: the mean over the scored positions."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from anchorlab.models.model import predict
from anchorlab.tasks.metrics import LossKind, loss_per_position
from anchorlab.training.feed import MemberBatches


@runtime_checkable
class Execution(Protocol):
    """A way to take one optimiser step with all members; all ways give a member the same result.

    In float64, weights agree to 1e-10. In float32 they agree within rounding, which training amplifies: after 30 steps
    of Adam at a learning rate of 1e-3, losses agree to a relative 1e-4 and weights to 3e-4.
    """

    @property
    def name(self) -> str:
        """The name that states record, so that resumed training uses the same execution."""

    def step(self, batches: MemberBatches, factor: float, active: Sequence[bool], step: int) -> None:
        """Take one optimiser step, updating the weights in place.

        Args:
            batches: one batch per member
            factor: multiplies the learning rates
            active: for each member whether it is updated
            step: the number of the optimiser step, from 0
        """


def mean_loss(
    outputs: Float[Tensor, "batch scored output"],
    targets: Shaped[Tensor, "batch scored *output"],
    weights: Float[Tensor, "batch scored"] | None,
    kind: LossKind,
) -> Float[Tensor, ""]:
    """Return the loss averaged over the scored positions of a batch, weighted by `weights` if given."""
    losses = loss_per_position(kind, outputs, targets)
    if weights is None:
        return losses.mean()
    # a batch without scored positions has loss 0, not 0 / 0
    return (losses * weights).sum() / weights.sum().clamp(min=torch.finfo(weights.dtype).tiny)


def forward_loss(
    module: nn.Module,
    inputs: Shaped[Tensor, "batch position *feature"],
    targets: Shaped[Tensor, "batch scored *output"],
    positions: Int[Tensor, "*batch scored"],
    scored: Float[Tensor, "batch scored"] | None,
    kind: LossKind,
    mixed: bool,
    weights: Mapping[str, Tensor] | None = None,
) -> Float[Tensor, ""]:
    """Return one member's loss.

    Args:
        module: the member, or a template for `weights`
        inputs: token ids, or vectors
        targets: token ids, distributions or vectors
        positions: where predictions are scored
        scored: the weight of each position in the mean; equal ones when None
        kind: the loss of one position
        mixed: whether matrix products run in bfloat16; the loss is computed in float32
        weights: used in place of the module's own, by name
    """
    with autocast(inputs.device, mixed):
        outputs = predict(module, inputs, positions, weights)
    return mean_loss(outputs.float() if mixed else outputs, targets, scored, kind)


def autocast(device: torch.device, mixed: bool) -> AbstractContextManager[object]:
    """Return torch's bfloat16 autocast if `mixed`, else a context that does nothing."""
    return torch.autocast(device.type, torch.bfloat16) if mixed else nullcontext()
