"""Feed-forward layers: a two-layer perceptron, also with a gate, or one linear map."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from anchorlab.models.attention import affine
from anchorlab.models.sites import HIDDEN, Site, Tap

Activation = Literal["relu", "gelu", "swiglu"]


class FeedForward(nn.Module):
    """Compute `σ(x W_in + b_in) W_out + b_out` at every position; GELU is GPT-2's tanh form.

    With `swiglu`, a gate opens each neuron: `(SiLU(x W_gate + b_gate) (x W_in + b_in)) W_out + b_out` (Shazeer, GLU
    Variants Improve Transformer, 2020; Llama without biases).
    """

    def __init__(
        self, name: str, width: int, hidden: int, activation: Activation = "relu", *, biases: bool = False
    ) -> None:
        super().__init__()
        self.name, self.activation = name, activation
        gated = activation == "swiglu"
        self.W_gate = nn.Parameter(torch.empty(width, hidden)) if gated else None
        self.b_gate = nn.Parameter(torch.empty(hidden)) if gated and biases else None
        self.W_in = nn.Parameter(torch.empty(width, hidden))
        self.b_in = nn.Parameter(torch.empty(hidden)) if biases else None
        self.W_out = nn.Parameter(torch.empty(hidden, width))
        self.b_out = nn.Parameter(torch.empty(width)) if biases else None

    @property
    def sites(self) -> list[Site]:
        """The sites, in the order of visits: before the activation, the gated values, and what `W_out` reads."""
        hooks = ("hook_pre", "hook_post") if self.W_gate is None else ("hook_pre", "hook_pre_linear", "hook_post")
        return [Site(f"{self.name}.{hook}", HIDDEN) for hook in hooks]

    def forward(self, x: Float[Tensor, "batch position width"], tap: Tap) -> Float[Tensor, "batch position width"]:
        """Return the layer's output, without the residual stream."""
        linear = affine(x, self.W_in, self.b_in)
        pre = tap(f"{self.name}.hook_pre", linear if self.W_gate is None else affine(x, self.W_gate, self.b_gate))
        if self.W_gate is not None:
            post = functional.silu(pre) * tap(f"{self.name}.hook_pre_linear", linear)
        else:
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
