"""torch's optimisers for members, with learning rate, weight decay and clipping per member."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils import get_total_norm
from torch.optim.adam import adam
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd

from anchorlab.models.initialisation import weight_group
from anchorlab.training.members import Members
from anchorlab.training.recipe import SGD, Optimiser, Recipe, Undecayed


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


def undecayed_weights(module: nn.Module, groups: Collection[Undecayed]) -> frozenset[str]:
    """Return the names of a module's weights in some of these groups, each by its first name.

    norm: all weights of modules whose class has `norm` in its name, such as `LayerNorm`
    bias: other weights named `b`, `b_...` or with `bias` in their name
    embedding: `W_E` and `W_pos` of anchorlab's models, and weights of `torch.nn.Embedding`

    A weight under several names, such as an embedding tied to the output map, is in the groups of all of them.
    """
    found: dict[int, set[Undecayed | None]] = {}
    for part in module.modules():
        for name, weight in part.named_parameters(recurse=False):
            found.setdefault(id(weight), set()).add(_group(part, name))
    return frozenset(name for name, weight in module.named_parameters() if found[id(weight)].intersection(groups))


def _group(part: nn.Module, name: str) -> Undecayed | None:
    """Return the group of a weight, by the module that owns it and by its name in it."""
    if "norm" in type(part).__name__.lower():
        return "norm"
    if isinstance(part, nn.Embedding) or weight_group(name) == "embedding":
        return "embedding"
    return "bias" if name == "b" or name.startswith("b_") or "bias" in name else None


def excess(norm: Float[Tensor, "..."], limit: float | Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Return the divisor that clips a gradient; `torch.nn.utils.clip_grad_norm_` also adds 1e-6 to the norm."""
    return ((norm + 1e-6) / limit).clamp(min=1.0)


class StackedOptimiser:
    """AdamW, Adam or SGD over stacked weights, updated in place, member by member.

    Calls the fused update of `torch.optim`, which reads each number once and clips as it reads, on views of one member.
    `state` maps `<slot>.<weight>` to a tensor `[member ...]`. `decays` maps each weight to 1 where its numbers decay
    and 0 elsewhere, `[...]` or one number for all; None if all decay.
    """

    def __init__(
        self,
        recipe: Recipe,
        members: Members,
        weights: Mapping[str, Float[Tensor, "member ..."]],
        decays: Mapping[str, Float[Tensor, "..."]] | None = None,
    ) -> None:
        self._decays = None if decays is None else [decays[name] for name in weights]
        self._decoupled = recipe.optimiser.kind == "adamw"
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
        """Update one member's weights in optimiser step `step`, from 0; `factor` multiplies the learning rate.

        The gradients are in the order of `weights`, without the member axis, and may be clipped in place.
        """
        weights, *state = self._arguments[member]
        grads, scale = [gradient.contiguous() for gradient in gradients], None  # on a CPU the kernels ignore strides
        if self.rates.clip is not None:
            # the norm over all weights of this member; the fused kernel divides by `scale` while it reads the gradient
            norm = torch.linalg.vector_norm(grads[0]) if len(grads) == 1 else get_total_norm(grads)
            scale = excess(norm, self.rates.clip[member])
            # the kernels divide by a scale in float32, and decay that is added to the gradient is not clipped
            if norm.dtype != torch.float32 or self._decays is not None:
                grads, scale = [gradient / scale for gradient in grads], None
        rate, decay = self.rates.learning[member] * factor, self.rates.decay[member]
        if self._decays is not None:  # the kernels decay all weights or none
            decayed, by = (weights, -rate * decay) if self._decoupled else (grads, decay)
            for one, weight, where in zip(decayed, weights, self._decays, strict=True):
                one.addcmul_(weight, where, value=by)
            decay = 0.0
        self._steps.fill_(step)
        self._update(weights, grads, *state, lr=rate, weight_decay=decay, grad_scale=scale, fused=True, maximize=False)
