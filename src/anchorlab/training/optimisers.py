"""Optimisers that update member by member, with learning rate, weight decay and clipping per member."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.utils import get_total_norm
from torch.optim.adam import adam
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd

from anchorlab.training.members import Members
from anchorlab.training.recipe import SGD, Optimiser, Recipe

NORM_MARGIN = 1e-6
"""Added to the norm of a gradient in clipping, as in `torch.nn.utils.clip_grad_norm_`."""


@dataclass(frozen=True)
class Rates:
    """Learning rate, weight decay and clipping norm of each member; `clip` is None without clipping."""

    learning: tuple[float, ...]
    decay: tuple[float, ...]
    clip: tuple[float, ...] | None

    @classmethod
    def of(cls, recipe: Recipe, members: Members) -> "Rates":
        """Return the members' own rates, or the recipe's rates if the members have none."""
        spec, count = recipe.optimiser, len(members)
        return cls(
            members.learning_rate or (spec.learning_rate,) * count,
            members.weight_decay or (spec.weight_decay,) * count,
            members.clip or (None if recipe.clip is None else (recipe.clip,) * count),
        )


def slots(spec: Optimiser) -> tuple[str, ...]:
    """Return the names of the state tensors that an optimiser keeps for each weight."""
    if isinstance(spec, SGD):
        return ("momentum",) if spec.momentum else ()
    return ("first", "second")


class StackedOptimiser:
    """AdamW, Adam or SGD over stacked weights, updated in place, member by member.

    torch's fused kernels run on views of one member. This is fastest on a CPU, since each number is read once. `state`
    maps `<slot>.<weight>` to a tensor `[member ...]`.
    """

    def __init__(self, recipe: Recipe, members: Members, weights: Mapping[str, Float[Tensor, "member ..."]]) -> None:
        self.spec, self.weights, self.rates = recipe.optimiser, weights, Rates.of(recipe, members)
        self._slots = slots(self.spec)
        self.state = {f"{slot}.{name}": torch.zeros_like(w) for slot in self._slots for name, w in weights.items()}
        self._views = [self._member_views(member) for member in range(len(members))]
        first = next(iter(weights.values()))
        device, dtype = first.device, first.dtype
        self._single = dtype == torch.float32
        # torch's fused kernels need one step tensor per weight: views of one tensor are filled together
        self._steps = torch.zeros(len(weights), device=device)
        self._step_views = list(self._steps.unbind())
        self._found = torch.zeros((), device=device)

    def _member_views(self, member: int) -> dict[str, list[Tensor]]:
        views = {slot: [self.state[f"{slot}.{name}"][member] for name in self.weights] for slot in self._slots}
        views["weights"] = [weight[member] for weight in self.weights.values()]
        return views

    @torch.no_grad()
    def update_member(self, member: int, gradients: Sequence[Float[Tensor, "..."]], factor: float, step: int) -> None:
        """Update one member's weights.

        Args:
            member: the index of the member
            gradients: one per weight, in the order of `weights` and without the member axis; may be clipped in place
            factor: multiplies the learning rate
            step: the number of the optimiser step, from 0
        """
        spec, views = self.spec, self._views[member]
        # on a CPU the fused kernels ignore strides and read gradients in memory order
        grads = [gradient.contiguous() for gradient in gradients]
        rate, decay = self.rates.learning[member] * factor, self.rates.decay[member]
        scale = found = None
        if self.rates.clip is not None:
            excess = ((get_total_norm(grads) + NORM_MARGIN) / self.rates.clip[member]).clamp(min=1.0)
            if self._single:  # the fused kernels divide by a float32 scale while reading: no extra pass
                scale, found = excess, self._found
            else:
                grads = [gradient / excess for gradient in grads]
        if isinstance(spec, SGD):
            buffers: list[Tensor | None] = [*views["momentum"]] if spec.momentum else [None] * len(grads)
            sgd(
                views["weights"],
                grads,
                buffers,
                fused=True,
                foreach=False,
                grad_scale=scale,
                found_inf=found,
                weight_decay=decay,
                momentum=spec.momentum,
                lr=rate,
                dampening=0.0,
                nesterov=False,
                maximize=False,
            )
            return
        self._steps.fill_(step)
        rule = adamw if spec.kind == "adamw" else adam
        rule(
            views["weights"],
            grads,
            views["first"],
            views["second"],
            [],
            self._step_views,
            fused=True,
            foreach=False,
            grad_scale=scale,
            found_inf=found,
            amsgrad=False,
            beta1=spec.betas[0],
            beta2=spec.betas[1],
            lr=rate,
            weight_decay=decay,
            eps=spec.epsilon,
            maximize=False,
        )
