"""Member by member: each member's own module, whose parameters are views into the stack. The best on a CPU."""

import copy
from collections.abc import Sequence

import torch
from torch import nn

from anchorlab.tasks.task import LossKind
from anchorlab.training.ensemble import Ensemble
from anchorlab.training.executions.step import forward_loss
from anchorlab.training.feed import MemberBatches
from anchorlab.training.optimisers import StackedOptimiser


class MemberExecution:
    """Trains one member after the other, step by step."""

    name = "member"

    def __init__(self, ensemble: Ensemble, optimiser: StackedOptimiser, loss: LossKind, mixed: bool) -> None:
        self.optimiser, self.loss, self.mixed = optimiser, loss, mixed
        self.modules = [member_module(ensemble, index) for index in range(ensemble.size)]
        self.parameters = [[module.get_parameter(name) for name in ensemble.trainable] for module in self.modules]

    def step(self, batches: MemberBatches, factor: float, active: Sequence[bool], step: int) -> None:
        """One optimiser step of every active member."""
        for index in (index for index, learns in enumerate(active) if learns):
            parameters = self.parameters[index]
            positions = batches.positions if batches.shared_positions else batches.positions[index]
            scored = None if batches.weights is None else batches.weights[index]
            loss = forward_loss(self.modules[index], batches.inputs[index], batches.targets[index], positions, scored,
                                self.loss, self.mixed)
            gradients = torch.autograd.grad(loss, parameters, materialize_grads=True)
            self.optimiser.update_member(index, gradients, factor, step)


def member_module(ensemble: Ensemble, member: int) -> nn.Module:
    """A module of its own for one member, whose parameters and buffers are views into the ensemble's stack."""
    module = copy.deepcopy(ensemble.template)
    for name, value in ensemble.member_weights(member).items():
        owner = module.get_submodule(name.rpartition(".")[0])
        leaf = name.rpartition(".")[2]
        if leaf in owner._parameters:
            owner._parameters[leaf] = nn.Parameter(value, requires_grad=name in ensemble.trainable)
        else:
            owner._buffers[leaf] = value
    return module
