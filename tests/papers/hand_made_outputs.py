"""Models made by hand: the tokens they put out and the attention of their heads are given."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from anchorlab.models.sites import Site, identity_tap
from anchorlab.training.ensemble import Ensemble

PATTERN_AXES = ("batch", "head", "query", "key")
Outputs = Callable[[Tensor], Tensor]
"""The tokens `[batch position]` that a model puts out for tokens `[batch position]`."""
Patterns = Callable[[Tensor], Tensor]
"""The attention `[batch layer head query key]` of a model's heads to tokens `[batch position]`."""


class HandMade(nn.Module):
    """A model for each member, chosen by the buffer `member`."""

    def __init__(self, outputs: Sequence[Outputs], patterns: Sequence[Patterns], size: int, layers: int) -> None:
        super().__init__()
        self.outputs, self.patterns, self.size = outputs, patterns, size
        self.register_buffer("member", torch.tensor(0))
        names = [f"blocks.{layer}.attn.hook_pattern" for layer in range(layers)]
        self.sites = {name: Site(name, PATTERN_AXES) for name in names}

    def forward(self, inputs, tap=identity_tap):
        member = int(self.member)
        if self.sites:
            for name, pattern in zip(self.sites, self.patterns[member](inputs).unbind(dim=1), strict=True):
                tap(name, pattern)
        return nn.functional.one_hot(self.outputs[member](inputs), self.size).float()


def hand_made_ensemble(
    outputs: Sequence[Outputs], patterns: Sequence[Patterns] = (), size: int = 256, layers: int = 0
) -> Ensemble:
    """An ensemble of members that put out what `outputs` says and attend as `patterns` says, in so many layers."""
    return Ensemble(HandMade(outputs, patterns, size, layers), {"member": torch.arange(len(outputs))}, ())
