"""The paper's closed forms of functions with one anchor, on vectors: equations (3), (4) and (6).

Each contains a mean over positions with weights 1 / ||x_j - a||. At the anchor itself the weight is infinite: in this
limit the mean is over the positions whose token equals the anchor.

Source: anchor functions, sections 3.1.1 and 3.1.3.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

Tokens = Float[Tensor, "batch position width"]


def key_ratio(x: Tokens, anchor: Float[Tensor, "width"], g: Callable[[Tokens], Tokens]) -> Float[Tensor, "batch width"]:
    """Return equation (3): sum_j g(x_{j+1}) / ||x_j - a|| over sum_j 1 / ||x_j - a||, j = 1 .. n-1."""
    return mean_near(g(x[:, 1:]), x[:, :-1] - anchor)


def one_anchor_ratio(
    x: Tokens, anchor: Float[Tensor, "width"], g: Callable[[Tokens, int], Float[Tensor, "batch width"]]
) -> Float[Tensor, "batch width"]:
    """Return equation (4): sum_j g_j({x_k | k in I_j}) / ||x_j - a|| over sum_j 1 / ||x_j - a||.

    `g(x, j)` is g_j for the position j, counted from 0, and may use any token of the sequence. The paper prints
    different ranges for the sums, j = 2 .. n in the numerator and j = 1 .. n-1 in the denominator. They agree unless
    the anchor is x_1, where the limit is 0, or x_n. Here both sums run over all positions.
    """
    values = torch.stack([g(x, position) for position in range(x.shape[1])], dim=1)
    return mean_near(values, x - anchor)


def recitation_ratio(x: Tokens, anchor: Float[Tensor, "width"]) -> Float[Tensor, "batch width"]:
    """Return equation (6): -x_n + sum_j (x_{j+1} + x_{j-1}) / ||x_j - a|| over sum_j 1 / ||x_j - a||, j = 2 .. n-1."""
    return mean_near(x[:, 2:] + x[:, :-2], x[:, 1:-1] - anchor) - x[:, -1]


def mean_near(values: Tokens, offset: Tokens) -> Float[Tensor, "batch width"]:
    """Return the mean of values weighted by 1 / ||offset||; if some offsets are zero, only these have weight."""
    distance = torch.linalg.vector_norm(offset, dim=-1, keepdim=True)
    zero = distance == 0
    weights = torch.where(zero.any(dim=1, keepdim=True), zero.to(distance.dtype), 1 / distance)
    return (values * weights).sum(dim=1) / weights.sum(dim=1)
