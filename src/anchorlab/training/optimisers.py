"""Stacked optimisers: one state for all members, with learning rate, weight decay and clipping of each member's own."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.utils import get_total_norm
from torch.optim.adam import adam
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd

from anchorlab.training.recipe import SGD, Members, Recipe

_TINY = 1e-6  # as in torch.nn.utils.clip_grad_norm_


class StackedOptimiser:
    """AdamW, Adam or SGD over stacked weights, updated in place.

    The same rule in two forms: `update_member` runs torch's fused kernels on one member's views (the fastest on a CPU,
    where it reads each number once), `update_all` is written on the whole stack with rates and step as tensors, so that
    a CUDA graph can hold it. `state` names its tensors `<slot>.<weight>`, each `[member ...]`.
    """

    def __init__(self, recipe: Recipe, members: Members, weights: Mapping[str, Tensor]) -> None:
        spec = recipe.optimiser
        count = len(members)
        self.spec = spec
        self.weights = weights
        self.learning_rates = members.learning_rate or (spec.learning_rate,) * count
        self.weight_decays = members.weight_decay or (spec.weight_decay,) * count
        self.clips = members.clip or (None if recipe.clip is None else (recipe.clip,) * count)
        slots = (("momentum",) if spec.momentum else ()) if isinstance(spec, SGD) else ("first", "second")
        self.state = {f"{slot}.{name}": torch.zeros_like(w) for slot in slots for name, w in weights.items()}
        self._slots = slots
        self._views = [self._member_views(member) for member in range(count)]
        first = next(iter(weights.values()))
        device, dtype = first.device, first.dtype
        self._single = dtype == torch.float32
        # torch's fused kernels count steps in tensors, one per weight: they are views of one, set at once
        self._steps = torch.zeros(len(weights), device=device)
        self._step_views = list(self._steps.unbind())
        self._found = torch.zeros((), device=device)
        self._rates = torch.tensor(self.learning_rates, device=device, dtype=dtype)
        self._decays = torch.tensor(self.weight_decays, device=device, dtype=dtype)
        self._limits = None if self.clips is None else torch.tensor(self.clips, device=device, dtype=dtype)

    def _member_views(self, member: int) -> dict[str, list[Tensor]]:
        views = {slot: [self.state[f"{slot}.{name}"][member] for name in self.weights] for slot in self._slots}
        views["weights"] = [weight[member] for weight in self.weights.values()]
        return views

    @torch.no_grad()
    def update_member(self, member: int, gradients: Sequence[Tensor], factor: float, step: int) -> None:
        """One member's step number `step` (from 0), its rate times `factor`; it may clip the gradients in place."""
        spec, views = self.spec, self._views[member]
        # on a CPU the fused kernels read gradients in the order of memory, whatever their strides
        grads = [gradient.contiguous() for gradient in gradients]
        rate, decay = self.learning_rates[member] * factor, self.weight_decays[member]
        scale = found = None
        if self.clips is not None:
            excess = ((get_total_norm(grads) + _TINY) / self.clips[member]).clamp(min=1.0)
            if self._single:  # the fused kernels divide by a float32 scale as they read: clipping costs no pass
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

    @torch.no_grad()
    def update_all(self, gradients: Mapping[str, Tensor], factors: Tensor, step: Tensor) -> None:
        """All members' step number `step` (from 0, a float64 scalar), with a learning-rate factor each, `[member]`.

        A factor of 0 leaves a member's weights as they are.
        """
        spec = self.spec
        rates = self._rates * factors
        coefficients = None
        if self._limits is not None:
            squares = (g.reshape(len(g), -1).square().sum(1) for g in gradients.values())
            norms = sum(squares, torch.zeros_like(rates)).sqrt()
            coefficients = (self._limits / (norms + _TINY)).clamp(max=1.0)
        for name, weight in self.weights.items():
            gradient = gradients[name]
            if coefficients is not None:
                gradient = gradient * _like(coefficients, weight)
            if spec.kind == "adamw":
                weight.mul_(1 - _like(rates * self._decays, weight))
            else:
                gradient = gradient + _like(self._decays, weight) * weight
            if isinstance(spec, SGD):
                if spec.momentum:
                    gradient = self.state[f"momentum.{name}"].mul_(spec.momentum).add_(gradient)
                weight.sub_(_like(rates, weight) * gradient)
                continue
            first, second = self.state[f"first.{name}"], self.state[f"second.{name}"]
            first.lerp_(gradient, 1 - spec.betas[0])
            second.mul_(spec.betas[1]).addcmul_(gradient, gradient, value=1 - spec.betas[1])
            correction_1 = 1 - spec.betas[0] ** (step + 1)
            correction_2 = (1 - spec.betas[1] ** (step + 1)).sqrt()
            denominator = (second.sqrt() / correction_2).add_(spec.epsilon)
            weight.sub_(_like(rates / correction_1, weight) * first / denominator)


def _like(values: Tensor, weight: Tensor) -> Tensor:
    """`[member]` shaped to multiply `[member ...]`."""
    return values.view(-1, *(1,) * (weight.ndim - 1))
