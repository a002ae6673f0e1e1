"""The equations of the anchor function paper as printed: oracles independent of patterns, rules and tokens.

Sequences are vectors `[batch position dimension]`: one-hot, or numbers with dimension 1. Ratios of sums over
1 / ||x_j - a|| are taken as limits: if some distances are zero, only these terms count. With `epsilon` above zero the
weight is 1 / (||x_j - a|| + epsilon) instead, which tends to this limit.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorlab.errors import SpecError

Vectors = Float[Tensor, "batch position dimension"]
Vector = Float[Tensor, "dimension"]
Result = Float[Tensor, "batch dimension"]
OfKey = Callable[[Tensor], Tensor]
OfPosition = Callable[[Tensor, int], Tensor]


def identity(x: Vectors, anchor: Vector) -> Result:
    """Equation (1): x_{i+1} where x_i = a."""
    return key_function(x, anchor, lambda key: key)


def key_function(x: Vectors, anchor: Vector, g: OfKey) -> Result:
    """Equation (2): g(x_{i+1}) where x_i = a, for exactly one i in 1 .. n-1.

    Errors: `SpecError` if a sequence does not hold the anchor exactly once before its end.
    """
    is_anchor = (x[:, :-1] == anchor).all(dim=-1)
    if not bool((is_anchor.sum(dim=1) == 1).all()):
        raise SpecError("x", "does not hold the anchor exactly once before its end", "equation (2) needs that")
    return g(x[:, 1:][is_anchor])


def key_ratio(x: Vectors, anchor: Vector, g: OfKey, epsilon: float = 0.0) -> Result:
    """Equation (3): sum_j g(x_{j+1}) / ||x_j - a|| over sum_j 1 / ||x_j - a||, j = 1 .. n-1."""
    return _ratio(g(x[:, 1:]), _distances(x[:, :-1], anchor), epsilon)


def general_ratio(x: Vectors, anchor: Vector, g: OfPosition, epsilon: float = 0.0, as_printed: bool = False) -> Result:
    """Equation (4): sum_j g_j({x_k | k in I_j}) / ||x_j - a|| over sum_j 1 / ||x_j - a||.

    `g(x, j)` is g_j for the 0-based position j and may use any token of the sequence. The paper prints different ranges
    for the sums, j = 2 .. n in the numerator and j = 1 .. n-1 in the denominator. They agree unless the anchor is x_1
    (the limit is then 0) or x_n. Here both sums run over all positions, or over the printed ones with `as_printed`.
    """
    length = x.shape[1]
    values = torch.stack([g(x, position) for position in range(length)], dim=1)
    distances = _distances(x, anchor)
    if not as_printed:
        return _ratio(values, distances, epsilon)
    weights = _weights(distances, epsilon)
    return (values * weights[..., None])[:, 1:].sum(dim=1) / weights[:, :-1].sum(dim=1, keepdim=True)


def composite(x: Vectors, anchors: Sequence[Vector], g: Sequence[OfKey]) -> Result:
    """Equation (5): g(g(x_{i-1}; x_i); x_{i+1}) where x_i and x_{i+1} are anchors."""
    which, rows = _which(x, anchors), torch.arange(len(x))
    i = (which >= 0).int().argmax(dim=1)
    return _apply(_apply(x[rows, i - 1], which[rows, i], g), which[rows, i + 1], g)


def working_memory(x: Vectors, anchors: Sequence[Vector], g: Sequence[OfKey]) -> Result:
    """Equation (5) with noise between the anchors: g(g(x_{i-1}; x_i); x_k) where x_i and x_k, i < k, are anchors."""
    which, rows = _which(x, anchors), torch.arange(len(x))
    is_anchor = (which >= 0).int()
    i, k = is_anchor.argmax(dim=1), x.shape[1] - 1 - is_anchor.flip(1).argmax(dim=1)
    return _apply(_apply(x[rows, i - 1], which[rows, i], g), which[rows, k], g)


def recitation(x: Vectors, anchor: Vector, epsilon: float = 0.0) -> Result:
    """Equation (6): -x_n + sum_j (x_{j+1} + x_{j-1}) / ||x_j - a|| over sum_j 1 / ||x_j - a||, j = 2 .. n-1."""
    return _ratio(x[:, 2:] + x[:, :-2], _distances(x[:, 1:-1], anchor), epsilon) - x[:, -1]


def reading_comprehension(x: Vectors, epsilon: float = 0.0) -> Result:
    """Equation (3) with the last token as anchor: sum_j x_{j+1} / ||x_j - x_n|| over sum_j 1 / ||x_j - x_n||.

    The question is the last token. The sums run over the anchors before it, j = 1, 3, .., and skip the items.
    """
    return _ratio(x[:, 1:-1:2], _distances(x[:, :-1:2], x[:, -1:]), epsilon)


def classification(x: Float[Tensor, "batch position 1"]) -> Float[Tensor, "batch 1"]:
    """Section 4.3: a_k where k is the arg min of |x_k - x_5|, as the limit of weights |x_k - x_5|^-p for large p."""
    distance = _distances(x[:, :-1:2], x[:, -1:])
    weights = (distance == distance.amin(dim=1, keepdim=True)).to(x.dtype)
    return (x[:, 1:-1:2] * weights[..., None]).sum(dim=1) / weights.sum(dim=1, keepdim=True)


def _which(x: Vectors, anchors: Sequence[Vector]) -> Int[Tensor, "batch position"]:
    """Return the index of the anchor at each position, -1 for none."""
    which = torch.full(x.shape[:2], -1)
    for index, anchor in enumerate(anchors):
        which[(x == anchor).all(dim=-1)] = index
    return which


def _apply(key: Result, anchor: Tensor, g: Sequence[OfKey]) -> Result:
    """Return g(key; anchor) for each row."""
    results = torch.stack([one(key) for one in g], dim=1)
    return results[torch.arange(len(key)), anchor]


def _distances(x: Vectors, anchor: Tensor) -> Float[Tensor, "batch position"]:
    distances: Tensor = torch.linalg.vector_norm(x - anchor, dim=-1)
    return distances


def _ratio(
    values: Float[Tensor, "batch position dimension"], distances: Float[Tensor, "batch position"], epsilon: float
) -> Result:
    weights = _weights(distances, epsilon)
    return (values * weights[..., None]).sum(dim=1) / weights.sum(dim=1, keepdim=True)


def _weights(distances: Float[Tensor, "batch position"], epsilon: float) -> Float[Tensor, "batch position"]:
    """Return 1 / distance up to a factor per sequence; if some distances are zero, only these have weight."""
    if epsilon > 0:
        return 1 / (distances + epsilon)
    zero = distances == 0
    return torch.where(zero.any(dim=1, keepdim=True), zero.to(distances.dtype), 1 / distances.clamp(min=1e-300))
