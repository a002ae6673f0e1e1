"""Feed-forward layers: a two-layer perceptron, or one linear map."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from anchorlab.models.attention import affine
from anchorlab.models.sites import Site, Tap

Activation = Literal["relu", "gelu"]


class FeedForward(nn.Module):
    """Compute `σ(x W_in + b_in) W_out + b_out` at every position; GELU is GPT-2's tanh form."""

    def __init__(
        self, name: str, width: int, hidden: int, activation: Activation = "relu", *, biases: bool = False
    ) -> None:
        super().__init__()
        self.name, self.activation = name, activation
        self.W_in = nn.Parameter(torch.empty(width, hidden))
        self.b_in = nn.Parameter(torch.empty(hidden)) if biases else None
        self.W_out = nn.Parameter(torch.empty(hidden, width))
        self.b_out = nn.Parameter(torch.empty(width)) if biases else None

    @property
    def sites(self) -> list[Site]:
        """The sites, in the order of visits: before and after the activation."""
        axes = ("batch", "position", "hidden")
        return [Site(f"{self.name}.hook_pre", axes), Site(f"{self.name}.hook_post", axes)]

    def forward(self, x: Float[Tensor, "batch position width"], tap: Tap) -> Float[Tensor, "batch position width"]:
        """Return the layer's output, without the residual stream."""
        pre = tap(f"{self.name}.hook_pre", affine(x, self.W_in, self.b_in))
        post = functional.relu(pre) if self.activation == "relu" else functional.gelu(pre, approximate="tanh")
        return affine(tap(f"{self.name}.hook_post", post), self.W_out, self.b_out)


class LinearFeedForward(nn.Module):
    """Compute `x W_F`: a feed-forward layer without hidden units (truncated weights, section 4.1 and appendix A.4)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.W_F = nn.Parameter(torch.empty(width, width))

    @property
    def sites(self) -> list[Site]:
        """No sites; its output is the block's `hook_mlp_out`."""
        return []

    def forward(self, x: Float[Tensor, "batch position width"], tap: Tap) -> Float[Tensor, "batch position width"]:
        """Return the layer's output, without the residual stream."""
        return x @ self.W_F
