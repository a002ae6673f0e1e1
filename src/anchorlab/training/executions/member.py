"""Train member by member: each has a module whose parameters are views of the stacked weights.

This is the fastest way on a CPU, except for many members of a tiny model.
"""

import copy
from collections.abc import Sequence
from functools import cached_property

import torch
from torch import nn

from anchorlab.tasks.metrics import Losses
from anchorlab.training.ensemble import Ensemble, refuse_without_weights
from anchorlab.training.executions.loss import forward_loss
from anchorlab.training.feed import MemberBatches
from anchorlab.training.optimisers import StackedOptimiser


class MemberExecution:
    """Train one member after another at each step."""

    name = "member"

    def __init__(self, ensemble: Ensemble, optimiser: StackedOptimiser, losses: Losses, mixed: bool) -> None:
        self.ensemble, self.optimiser, self.losses, self.mixed = ensemble, optimiser, losses, mixed

    @cached_property
    def modules(self) -> list[nn.Module]:
        """The module of each member; untrained members need none."""
        return [member_module(self.ensemble, index) for index in range(self.ensemble.size)]

    @cached_property
    def parameters(self) -> list[list[nn.Parameter]]:
        """The trainable weights of each member."""
        return [[module.get_parameter(name) for name in self.ensemble.trainable] for module in self.modules]

    def step(self, batches: MemberBatches, factor: float, active: Sequence[bool], step: int) -> None:
        """Take one optimiser step with every active member."""
        for index in (index for index, learns in enumerate(active) if learns):
            parameters = self.parameters[index]
            loss = forward_loss(
                self.modules[index],
                batches.inputs[index].clone(),  # a copy has an alignment that does not depend on the index
                batches.targets[index],
                batches.positions if batches.shared_positions else batches.positions[index],
                None if batches.weights is None else batches.weights[index],
                self.losses,
                self.mixed,
            )
            gradients = torch.autograd.grad(loss, parameters, materialize_grads=True)
            self.optimiser.update_member(index, gradients, factor, step)


def member_module(ensemble: Ensemble, member: int) -> nn.Module:
    """Return a module for one member, whose parameters and buffers are views of the ensemble's stacked weights."""
    # put views of the stacked weights in place of the template's, under every name of a tied weight: an update of the
    # stack is then an update of the module, without a copy
    module = copy.deepcopy(ensemble.template)
    names, buffers = _names(module), dict(module.named_buffers())
    for name, value in ensemble.member_weights(member).items():
        view = value if name in buffers else nn.Parameter(value, requires_grad=name in ensemble.trainable)
        for alias in names[name]:
            owner, _, leaf = alias.rpartition(".")
            setattr(module.get_submodule(owner), leaf, view)  # torch's recurrent layers track attribute changes
    for key, hook in list(module._forward_pre_hooks.items()):
        if hook is refuse_without_weights:
            del module._forward_pre_hooks[key]
    return module


def _names(module: nn.Module) -> dict[str, list[str]]:
    """Return all names of every weight, by its first name; tied weights have several."""
    known: dict[int, list[str]] = {}
    every = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
    for name, value in every:
        known.setdefault(id(value), []).append(name)
    return {names[0]: names for names in known.values()}
