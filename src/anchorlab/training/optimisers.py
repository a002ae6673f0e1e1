"""Stacked optimisers: one state for all members; learning rate, weight decay and clipping per member."""

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.utils import get_total_norm
from torch.optim.adam import adam
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd

from anchorlab.training.members import Members
from anchorlab.training.recipe import SGD, Recipe

_TINY = 1e-6  # as in torch.nn.utils.clip_grad_norm_


class StackedOptimiser:
    """AdamW, Adam or SGD over stacked weights, updated in place.

    There are two equivalent updates. `update_member` runs torch's fused kernels on views of one member, which is
    fastest on a CPU: each number is read once. `update_all` works on the whole stack with rates and step as tensors, so
    a CUDA graph can capture it. `state` maps `<slot>.<weight>` to a tensor `[member ...]`.
    """

    def __init__(self, recipe: Recipe, members: Members, weights: Mapping[str, Float[Tensor, "member ..."]]) -> None:
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
        # torch's fused kernels want a step tensor per weight: views of one tensor are set together
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
        """Update one member's weights.

        Args:
            member: the index of the member
            gradients: of each weight, in the order of `weights` and without the member axis; may be clipped in place
            factor: multiplies the learning rate
            step: the number of the optimiser step, from 0
        """
        spec, views = self.spec, self._views[member]
        # on a CPU the fused kernels ignore strides and read gradients in memory order
        grads = [gradient.contiguous() for gradient in gradients]
        rate, decay = self.learning_rates[member] * factor, self.weight_decays[member]
        scale = found = None
        if self.clips is not None:
            excess = ((get_total_norm(grads) + _TINY) / self.clips[member]).clamp(min=1.0)
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

    @torch.no_grad()
    def update_all(
        self,
        gradients: Mapping[str, Float[Tensor, "member ..."]],
        factors: Float[Tensor, "member"],
        step: Float[Tensor, ""],
    ) -> None:
        """Update the weights of all members.

        Args:
            gradients: by weight
            factors: multiply each member's learning rate; 0 leaves its weights unchanged
            step: the number of the optimiser step, from 0, in float64
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


def _like(values: Float[Tensor, "member"], weight: Float[Tensor, "member ..."]) -> Float[Tensor, "member ..."]:
    """Add axes of size 1 to `values`, so that they multiply `weight`."""
    return values.view(-1, *(1,) * (weight.ndim - 1))
