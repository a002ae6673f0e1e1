"""The optimisers of mapped members: their weights lie in one buffer, so that a member is one row."""

from collections.abc import Collection, Mapping

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from anchorlab.training.members import Members
from anchorlab.training.optimisers import StackedOptimiser, excess
from anchorlab.training.recipe import SGD, Recipe

_ALIGNMENT = 32  # numbers; every weight begins at a cache line, like a separately allocated tensor


class FlatWeights:
    """A copy of stacked weights in one buffer: each weight fills a range of columns, and zeros after it align the next.

        member 0   | W_E ... | b_U 0 0 | W_Q ... |
        member 1   | W_E ... | b_U 0 0 | W_Q ... |

    `values` is the buffer, `[member parameter]`, and `views` maps names to views of it, `[member ...]`.
    """

    def __init__(self, weights: Mapping[str, Shaped[Tensor, "member ..."]]) -> None:
        self._gaps = {name: w.new_zeros(len(w), -w[0].numel() % _ALIGNMENT) for name, w in weights.items()}
        self._shapes = {name: weight.shape for name, weight in weights.items()}
        self.values = self.gather(weights)
        self.views = self.split(self.values)

    def gather(self, values: Mapping[str, Shaped[Tensor, "member ..."]]) -> Shaped[Tensor, "member parameter"]:
        """Return values for each weight, such as gradients, in a new buffer with the same columns."""
        columns: list[Tensor] = []
        for name, gap in self._gaps.items():
            columns += [values[name].reshape(len(gap), -1), gap]
        return torch.cat(columns, dim=1)

    def split(self, buffer: Shaped[Tensor, "member parameter"]) -> dict[str, Shaped[Tensor, "member ..."]]:
        """Return views of a buffer with the same columns, such as an optimiser's state, by name."""
        sizes = [size for name, gap in self._gaps.items() for size in (self._shapes[name][1:].numel(), gap.shape[1])]
        parts = zip(self._shapes.items(), buffer.split_with_sizes(sizes, dim=1)[::2], strict=True)
        return {name: part.view(shape) for (name, shape), part in parts}


class RowOptimiser:
    """AdamW, Adam or SGD over flat weights, updated in place by one fused call of torch per member.

    The weights named in `undecayed` do not decay.
    """

    def __init__(
        self, recipe: Recipe, members: Members, flat: FlatWeights, undecayed: Collection[str] = frozenset()
    ) -> None:
        self.decays: Float[Tensor, parameter] | None = None
        if undecayed:
            where = torch.ones_like(flat.values)
            for name in undecayed:
                flat.split(where)[name].zero_()
            self.decays = where[0].clone()
        decays = None if self.decays is None else {"": self.decays}
        self.flat, self.rows = flat, StackedOptimiser(recipe, members, {"": flat.values}, decays)
        self.state = {slot + name: v for slot, each in self.rows.state.items() for name, v in flat.split(each).items()}

    def update(
        self,
        gradients: Mapping[str, Float[Tensor, "member ..."]],
        factor: Float[Tensor, ""],
        step: Float[Tensor, ""],
        active: Bool[Tensor, "member"],
    ) -> None:
        """Update the weights of all `active` members; others keep their weights and state.

        `factor` multiplies the learning rates, and `step` is the number of the optimiser step, from 0; both in float64.
        """
        self._update(self.flat.gather(gradients), factor, step, active)

    def _update(self, gradient: Tensor, factor: Tensor, step: Tensor, active: Tensor) -> None:
        for member in active.nonzero().flatten().tolist():
            self.rows.update_member(member, [gradient[member]], factor.item(), int(step))


class FlatOptimiser(RowOptimiser):
    """AdamW, Adam or SGD over flat weights, in a few kernels for all members: for CUDA graphs and the smallest models.

    All values that change from step to step are tensors on the device, so that a graph can replay the update.
    """

    def __init__(
        self, recipe: Recipe, members: Members, flat: FlatWeights, undecayed: Collection[str] = frozenset()
    ) -> None:
        super().__init__(recipe, members, flat, undecayed)
        self.spec, rates = recipe.optimiser, self.rows.rates
        # in float64, as in torch's fused kernels: the numbers are few, and each one affects a whole row
        table = torch.tensor([rates.learning, rates.decay], dtype=torch.float64, device=flat.values.device)
        self._learning, self._decay = table.unsqueeze(2)
        self._limits = None if rates.clip is None else flat.values.new_tensor(rates.clip).unsqueeze(1)

    @torch.no_grad()
    def _update(self, gradient: Tensor, factor: Tensor, step: Tensor, active: Tensor) -> None:
        spec, weights = self.spec, self.flat.values
        learns, rates, moved = active.unsqueeze(1), self._learning * factor, weights
        # the norm of a row is the norm over all weights of a member; the gaps between weights are zero and add nothing
        if self._limits is not None:
            gradient.div_(excess(torch.linalg.vector_norm(gradient, dim=1, keepdim=True), self._limits))
        # AdamW: decoupled decay shrinks the weights before the update; otherwise the decay is part of the gradient
        decaying = weights if self.decays is None else weights * self.decays
        if spec.kind == "adamw":
            moved = torch.addcmul(weights, decaying, (rates * self._decay).to(weights.dtype), value=-1)
        else:
            gradient.addcmul_(self._decay.to(weights.dtype), decaying)
        if isinstance(spec, SGD):
            for momentum in self.rows.state.values():
                gradient = torch.where(learns, gradient + spec.momentum * momentum, momentum, out=momentum)
        else:
            (first, second), (beta, other), number = self.rows.state.values(), spec.betas, step + 1
            # moving means of the gradient and of its square; resting members keep their old means
            torch.where(learns, first.lerp(gradient, 1 - beta), first, out=first)
            torch.where(learns, (second * other).addcmul_(gradient, gradient, value=1 - other), second, out=second)
            # Adam's direction with both bias corrections: 1 - β₂^t under the root, and 1 - β₁^t in the rate, where it
            # is one number per member instead of one per weight
            gradient = first / (second.sqrt() * (1 - other**number).rsqrt()).add_(spec.epsilon)
            rates = rates / (1 - beta**number)
        # all rows are computed, and only the active ones are written: a graph cannot choose rows
        moved = torch.addcmul(moved, gradient, rates.to(weights.dtype), value=-1)
        torch.where(learns, moved, weights, out=weights)
