"""Train on a CPU with the gradients of all members from one mapped pass."""

from collections.abc import Sequence

from anchorlab.tasks.metrics import LossKind
from anchorlab.training.ensemble import Ensemble
from anchorlab.training.executions.gradients import MappedGradients
from anchorlab.training.feed import MemberBatches
from anchorlab.training.optimisers import StackedOptimiser


class MappedExecution:
    """Compute all gradients in one vmapped pass, then update member by member."""

    name = "mapped"

    def __init__(self, ensemble: Ensemble, optimiser: StackedOptimiser, loss: LossKind, mixed: bool) -> None:
        self.optimiser = optimiser
        self.gradients = MappedGradients(ensemble, loss, mixed)

    def step(self, batches: MemberBatches, factor: float, active: Sequence[bool], step: int) -> None:
        """Take one optimiser step with all active members."""
        gradients = self.gradients(batches)
        names = self.optimiser.weights
        for index in (index for index, learns in enumerate(active) if learns):
            self.optimiser.update_member(index, [gradients[name][index] for name in names], factor, step)
