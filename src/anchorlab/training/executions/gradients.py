"""Compute the gradients of all members in one pass, mapped over the stacked weights."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.tasks.metrics import LossKind
from anchorlab.training.ensemble import Ensemble
from anchorlab.training.executions.step import forward_loss
from anchorlab.training.feed import MemberBatches


class MappedGradients:
    """Compute the gradient of each trainable weight, `[member ...]`, for one batch per member.

    `at_once` is the number of members in one pass, None for all; only their activations take memory at a time.
    """

    def __init__(self, ensemble: Ensemble, loss: LossKind, mixed: bool) -> None:
        self.members = ensemble.size
        self.at_once: int | None = None
        self._trainable = {name: ensemble.weights[name] for name in ensemble.trainable}
        self._fixed = {name: value for name, value in ensemble.weights.items() if name not in self._trainable}
        template = ensemble.template

        def member_loss(
            trainable: dict[str, Tensor],
            fixed: dict[str, Tensor],
            inputs: Tensor,
            targets: Tensor,
            positions: Tensor,
            scored: Tensor | None,
        ) -> Tensor:
            return forward_loss(template, inputs, targets, positions, scored, loss, mixed, {**trainable, **fixed})

        self._gradient = torch.func.grad(member_loss)

    def __call__(self, batches: MemberBatches) -> dict[str, Float[Tensor, "member ..."]]:
        """Return the gradient of each trainable weight, by name."""
        axes = (0, 0, 0, 0, None if batches.shared_positions else 0, None if batches.weights is None else 0)
        gradient: Callable[..., dict[str, Tensor]] = torch.func.vmap(
            self._gradient, in_dims=axes, chunk_size=self.at_once
        )
        return gradient(
            self._trainable, self._fixed, batches.inputs, batches.targets, batches.positions, batches.weights
        )

    def halve(self) -> bool:
        """Halve the number of members in one pass; return False if it was 1 already."""
        before = self.at_once or self.members
        self.at_once = -(-before // 2)
        return before > 1

    def refusal(self, batches: MemberBatches) -> str | None:
        """Return why torch cannot map this model over members, or None if it can.

        A user's module may contain operations that `torch.func.vmap` does not support.
        """
        try:
            self(batches)
        except torch.OutOfMemoryError:
            return None  # does not mean that the model cannot be mapped
        except RuntimeError as error:
            return str(error).splitlines()[0]
        return None
