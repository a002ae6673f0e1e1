"""The parts of a pretrained model: they hold its weights under our names, and the properties that the lens needs."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from anchorlab.language.architectures import Architecture
from anchorlab.models.attention import affine
from anchorlab.models.precision import at_least_float32
from anchorlab.models.sites import Tap


class Part(nn.Module):
    """A part that only holds weights."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


class Norm(Part):
    """The weights of a norm: `(x - mean) / sqrt(variance + epsilon) * (offset + w) + b`.

    A root-mean-square norm is not `centred`: it does not subtract the mean, and has no `b`.
    """

    def __init__(self, name: str, centred: bool, epsilon: float, offset: float) -> None:
        super().__init__(name)
        self.centred, self.epsilon, self.offset = centred, epsilon, offset

    @classmethod
    def like(cls, norm: nn.Module, name: str, offset: float) -> "Norm":
        """Return a norm with the type and epsilon of one of Hugging Face's norms."""
        epsilon: Any = norm.variance_epsilon if hasattr(norm, "variance_epsilon") else norm.eps
        return cls(name, isinstance(norm, nn.LayerNorm), float(epsilon), offset)

    def forward(self, x: Float[Tensor, "*batch position width"], tap: Tap) -> Float[Tensor, "*batch position width"]:
        """Return the normalised stream, or the streams of several receivers."""
        w: Any = self.w
        if self.centred:
            y = functional.layer_norm(x, w.shape, w, getattr(self, "b", None), self.epsilon)
        else:
            exact = at_least_float32(x)  # squares of large values are infinite in float16
            y = (exact * torch.rsqrt(exact.pow(2).mean(-1, keepdim=True) + self.epsilon)) * (self.offset + w)
            y = y.to(x.dtype)
        return tap(f"{self.name}.hook_normalized", y)


class Output(Part):
    """The weights of the output map."""

    def forward(self, x: Float[Tensor, "batch position width"]) -> Float[Tensor, "batch position output"]:
        """Return the logits."""
        return affine(x, self.W_U, getattr(self, "b_U", None))  # type: ignore[arg-type]


class Heads(Part):
    """The weights of attention, with its numbers of heads, head width and scale."""

    def __init__(self, name: str, heads: int, key_value_heads: int, head_width: int, scale: float) -> None:
        super().__init__(name)
        self.heads, self.key_value_heads, self.head_width, self.scale = heads, key_value_heads, head_width, scale

    def written(self, z: Float[Tensor, "batch query head head_width"]) -> Float[Tensor, "head batch query width"]:
        """Return what each head adds to the stream, without the layer's bias, from the values that it mixed."""
        weight: Any = self.W_O
        return torch.einsum("bqhe,hew->hbqw", z, weight.view(self.heads, self.head_width, -1))


class Layers(Part):
    """A block: attention and a feed-forward layer, which read the stream through norms and add to it."""

    norm_first, residual, causal = True, True, True

    def __init__(self, name: str, attn: Heads, norm: nn.Module, architecture: Architecture, parallel: bool) -> None:
        super().__init__(name)
        self.parallel = parallel
        self.adds_normed = architecture.attention_added is not None
        self.ln1 = Norm.like(norm, f"{name}.ln1", architecture.gain_offset)
        self.attn = attn
        self.ln2 = Norm.like(norm, f"{name}.ln2", architecture.gain_offset)
        self.mlp = Part(f"{name}.mlp")
