"""torch's optimisers for members, with learning rate, weight decay and clipping per member."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.utils import get_total_norm
from torch.optim.adam import adam
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd

from anchorlab.training.members import Members
from anchorlab.training.recipe import SGD, Optimiser, Recipe


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


def excess(norm: Float[Tensor, "..."], limit: float | Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Return what clipping divides a gradient by; `torch.nn.utils.clip_grad_norm_` adds the same 1e-6."""
    return ((norm + 1e-6) / limit).clamp(min=1.0)


class StackedOptimiser:
    """AdamW, Adam or SGD over stacked weights, updated in place, member by member.

    Calls the fused update of `torch.optim`, which reads each number once and clips as it reads, on views of one member.
    `state` maps `<slot>.<weight>` to a tensor `[member ...]`.
    """

    def __init__(self, recipe: Recipe, members: Members, weights: Mapping[str, Float[Tensor, "member ..."]]) -> None:
        spec, self.rates = recipe.optimiser, Rates.of(recipe, members)
        self.state = {f"{slot}.{name}": torch.zeros_like(w) for slot in slots(spec) for name, w in weights.items()}
        self._steps = torch.zeros(len(weights), device=next(iter(weights.values())).device)
        self._update: Callable[..., None]
        last: list[Sequence[Any]]
        if isinstance(spec, SGD):
            self._update = partial(sgd, momentum=spec.momentum, dampening=0.0, nesterov=False)
            last = [] if spec.momentum else [[None] * len(weights)]
        else:
            rule, (first, second) = adamw if spec.kind == "adamw" else adam, spec.betas
            self._update = partial(rule, beta1=first, beta2=second, eps=spec.epsilon, amsgrad=False)
            last = [[], self._steps.unbind()]  # one step tensor per weight, all filled together
        # views of each member's slice of every stack, made once: the fused kernels then write into the stacks in place
        stacks = [[*weights.values()], *([self.state[f"{slot}.{name}"] for name in weights] for slot in slots(spec))]
        self._arguments = [[[w[member] for w in stack] for stack in stacks] + last for member in range(len(members))]

    @torch.no_grad()
    def update_member(self, member: int, gradients: Sequence[Float[Tensor, "..."]], factor: float, step: int) -> None:
        """Update one member's weights.

        Args:
            member: the index of the member
            gradients: one per weight, in the order of `weights` and without the member axis; may be clipped in place
            factor: multiplies the learning rate
            step: the number of the optimiser step, from 0
        """
        weights, *state = self._arguments[member]
        grads, scale = [gradient.contiguous() for gradient in gradients], None  # on a CPU the kernels ignore strides
        if self.rates.clip is not None:
            # the norm over all weights of this member; the fused kernel divides by `scale` while it reads the gradient
            norm = torch.linalg.vector_norm(grads[0]) if len(grads) == 1 else get_total_norm(grads)
            scale = excess(norm, self.rates.clip[member])
            if norm.dtype != torch.float32:  # the kernels divide by a scale in float32
                grads, scale = [gradient / scale for gradient in grads], None
        rate, decay = self.rates.learning[member] * factor, self.rates.decay[member]
        self._steps.fill_(step)
        self._update(weights, grads, *state, lr=rate, weight_decay=decay, grad_scale=scale, fused=True, maximize=False)
