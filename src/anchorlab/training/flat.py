"""Flat weights: all stacked weights side by side in one buffer, so that one kernel reads them all."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

_ALIGNMENT = 32  # numbers; every weight begins at a cache line, like a separately allocated tensor


def aligned(stacked: Shaped[Tensor, "member ..."]) -> Shaped[Tensor, "member ..."]:
    """Return a copy in which every member begins at a cache line, so that its index cannot change the order of sums."""
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
