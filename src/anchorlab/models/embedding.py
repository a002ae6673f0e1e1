"""Embeddings of tokens, vectors and positions, and the output map."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from anchorlab.errors import one_sequence
from anchorlab.models.attention import affine


class TokenEmbedding(nn.Module):
    """Map token ids to rows of `W_E` `[token width]`."""

    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.W_E = nn.Parameter(torch.empty(tokens, width))

    def forward(self, inputs: Int[Tensor, "batch position"]) -> Float[Tensor, "batch position width"]:
        """Return the embedded sequence. Errors: `SpecError` for a sequence without a batch axis."""
        if inputs.ndim == 1:
            raise one_sequence("inputs")
        return functional.embedding(inputs, self.W_E)


class VectorEmbedding(nn.Module):
    """Map input vectors to `x W_E + b_E`, with `W_E` `[feature width]`."""

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.W_E = nn.Parameter(torch.empty(features, width))
        self.b_E = nn.Parameter(torch.empty(width))

    def forward(self, inputs: Float[Tensor, "batch position feature"]) -> Float[Tensor, "batch position width"]:
        """Return the embedded sequence. Errors: `SpecError` for a sequence without a batch axis."""
        if inputs.ndim == 2:
            raise one_sequence("inputs")
        return affine(inputs, self.W_E, self.b_E)


class PositionEmbedding(nn.Module):
    """One vector per position: the rows of `W_pos` `[position width]`."""

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.W_pos = nn.Parameter(torch.empty(length, width))


class Unembedding(nn.Module):
    """Map the stream to predictions `x W_U + b_U`, with `W_U` `[width output]`."""

    def __init__(self, width: int, outputs: int, *, bias: bool) -> None:
        super().__init__()
        self.W_U = nn.Parameter(torch.empty(width, outputs))
        self.b_U = nn.Parameter(torch.empty(outputs)) if bias else None

    def forward(self, x: Float[Tensor, "batch position width"]) -> Float[Tensor, "batch position output"]:
        """Return the predictions."""
        return affine(x, self.W_U, self.b_U)
