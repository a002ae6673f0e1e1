"""The optimiser of mapped members: their weights lie in one buffer, so a few kernels update the whole ensemble."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from anchorlab.training.members import Members
from anchorlab.training.optimisers import NORM_MARGIN, Rates, slots
from anchorlab.training.recipe import SGD, Recipe

_ALIGNMENT = 32  # numbers; every weight begins at a cache line, like a separately allocated tensor


def aligned(stacked: Shaped[Tensor, "member ..."]) -> Shaped[Tensor, "member ..."]:
    """Return a copy with every member at the start of a cache line; its index then cannot change the order of sums."""
    size = stacked[0].numel()
    rows = stacked.new_zeros(len(stacked), size + -size % _ALIGNMENT)[:, :size]
    return rows.view(stacked.shape).copy_(stacked)


@dataclass(frozen=True)
class FlatWeights:
    """Stacked weights in one buffer: each weight fills a range of columns, and gaps of zeros align the next one.

        member 0   | W_E ... | b_U 0 0 | W_Q ... |
        member 1   | W_E ... | b_U 0 0 | W_Q ... |

    Fields
        values: the buffer
        views: the weights by name, `[member ...]`, as views of the buffer
        gaps: the zeros that follow a weight, by the weight's name, for `gather`
    """

    values: Float[Tensor, "member parameter"]
    views: Mapping[str, Float[Tensor, "member ..."]]
    gaps: Mapping[str, Float[Tensor, "member gap"]]

    @classmethod
    def of(cls, weights: Mapping[str, Float[Tensor, "member ..."]]) -> "FlatWeights":
        """Copy stacked weights, all of one dtype, into a new buffer."""
        flat = cls.zeros(weights)
        for name, weight in weights.items():
            flat.views[name].copy_(weight)
        return flat

    @classmethod
    def zeros(cls, weights: Mapping[str, Float[Tensor, "member ..."]]) -> "FlatWeights":
        """Return zeros in the shapes of these weights, such as the initial state of an optimiser."""
        first = next(iter(weights.values()))
        sizes = {name: weight[0].numel() for name, weight in weights.items()}
        gaps = {name: first.new_zeros(len(first), -size % _ALIGNMENT) for name, size in sizes.items()}
        values = first.new_zeros(len(first), sum(sizes.values()) + sum(gap.shape[1] for gap in gaps.values()))
        views: dict[str, Tensor] = {}
        start = 0
        for name, weight in weights.items():
            views[name] = values[:, start : start + sizes[name]].view(weight.shape)
            start += sizes[name] + gaps[name].shape[1]
        return cls(values, views, {name: gap for name, gap in gaps.items() if gap.shape[1]})

    def gather(self, values: Mapping[str, Float[Tensor, "member ..."]]) -> Float[Tensor, "member parameter"]:
        """Return values for each weight, such as gradients, in a new buffer with the same columns."""
        columns: list[Tensor] = []
        for name, weight in self.views.items():
            columns.append(values[name].reshape(len(weight), -1))
            if name in self.gaps:
                columns.append(self.gaps[name])
        return torch.cat(columns, dim=1)


class FlatOptimiser:
    """AdamW, Adam or SGD over flat weights, updated in place.

    The number of kernels does not depend on the number of weights or members. All values that change from step to step
    are tensors on the device, so that a CUDA graph can replay the update. Inactive members keep their weights and their
    state.
    """

    def __init__(self, recipe: Recipe, members: Members, flat: FlatWeights) -> None:
        self.spec, self.flat = recipe.optimiser, flat
        self.weights = flat.views
        self._slots = {slot: FlatWeights.zeros(flat.views) for slot in slots(self.spec)}
        self.state = {f"{slot}.{name}": view for slot, each in self._slots.items() for name, view in each.views.items()}
        rates = Rates.of(recipe, members)
        device = flat.values.device

        def column(values: tuple[float, ...]) -> Float[Tensor, "member 1"]:
            return torch.tensor(values, dtype=torch.float64, device=device).unsqueeze(1)

        # In float64, as in torch's fused kernels: the numbers are few, and each one affects a whole row.
        learning, decay = column(rates.learning), column(rates.decay)
        self._limits = None if rates.clip is None else column(rates.clip).to(flat.values.dtype)
        self._added_decay = decay.to(flat.values.dtype)
        if isinstance(self.spec, SGD):
            kept, new = self.spec.momentum, 1.0
        else:
            (first, kept), new = self.spec.betas, 1 - self.spec.betas[0]
            self._betas = torch.tensor([first, kept], dtype=torch.float64, device=device)
            self._epsilon = flat.values.new_full((), self.spec.epsilon)
        # Per member: learning rate, learning rate x weight decay, weight of the new gradient, factor of the old state.
        every = [learning, learning * decay, torch.full_like(decay, new), torch.full_like(decay, kept)]
        self._active = torch.cat(every, dim=1)
        self._resting = torch.tensor([0.0, 0.0, 0.0, 1.0], dtype=torch.float64, device=device)

    @torch.no_grad()
    def update(
        self,
        gradients: Mapping[str, Float[Tensor, "member ..."]],
        factor: Float[Tensor, ""],
        step: Float[Tensor, ""],
        active: Bool[Tensor, "member"],
    ) -> None:
        """Update the weights of all active members.

        Args:
            gradients: the gradient of each weight, by name
            factor: multiplies the learning rates, in float64
            step: the number of the optimiser step, from 0, in float64
            active: for each member whether it is updated
        """
        spec, weights = self.spec, self.flat.values
        learns = active.unsqueeze(1)
        numbers = torch.where(learns, self._active, self._resting)
        rates, shrinking = torch.split(numbers[:, :2] * factor, 1, dim=1)
        new, kept = torch.split(numbers[:, 2:].to(weights.dtype), 1, dim=1)
        gradient = self.flat.gather(gradients)
        if self._limits is not None:
            norms = torch.linalg.vector_norm(gradient, dim=1, keepdim=True)
            gradient.mul_((self._limits / (norms + NORM_MARGIN)).clamp(max=1.0))
        if spec.kind == "adamw":
            weights.mul_((1 - shrinking).to(weights.dtype))
        else:
            gradient.addcmul_(self._added_decay, weights)
        # Fill a resting member's gradient with 0: multiplying by 0 would keep NaN and infinity.
        gradient.masked_fill_(~learns, 0.0)
        if isinstance(spec, SGD):
            if spec.momentum:
                gradient = self._slots["momentum"].values.mul_(kept).add_(gradient)
            moved = torch.addcmul(weights, gradient, -rates.to(weights.dtype))
        else:
            first, second = self._slots["first"].values, self._slots["second"].values
            first.lerp_(gradient, new)
            second.mul_(kept).addcmul_(gradient, gradient, value=1 - spec.betas[1])
            first_missing, second_missing = (1 - self._betas.pow(step + 1)).unbind()
            scale = second_missing.rsqrt().to(weights.dtype)
            roots = torch.addcmul(self._epsilon, second.sqrt(), scale)
            moved = torch.addcmul(weights, first / roots, -(rates / first_missing).to(weights.dtype))
        torch.where(learns, moved, weights, out=weights)
