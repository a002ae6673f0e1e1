"""Computations on what a model in half precision returns."""

import torch
from jaxtyping import Shaped
from torch import Tensor


def at_least_float32(values: Shaped[Tensor, "*axes"]) -> Shaped[Tensor, "*axes"]:
    """Return values in float32, or unchanged if in float64: probabilities and sums need more than half precision."""
    return values.to(torch.promote_types(values.dtype, torch.float32))
