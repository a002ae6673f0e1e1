"""The equations of the anchor function paper as printed: oracles independent of patterns, rules and tokens.

Sequences are vectors `[batch position dimension]`: one-hot, or numbers with dimension 1. Ratios of sums over
1 / ||x_j - a|| are taken as limits: if some distances are zero, only these terms count. With `epsilon` above zero the
weight is 1 / (||x_j - a|| + epsilon) instead, which tends to this limit. Results are `[batch dimension]`.
"""

import torch


def identity(x, anchor):
    """Equation (1): x_{i+1} where x_i = a."""
    return key_function(x, anchor, lambda key: key)


def key_function(x, anchor, g):
    """Equation (2): g(x_{i+1}) where x_i = a, for exactly one i in 1 .. n-1."""
    is_anchor = (x[:, :-1] == anchor).all(dim=-1)
    assert (is_anchor.sum(dim=1) == 1).all()
    return g(x[:, 1:][is_anchor])


def key_ratio(x, anchor, g, epsilon=0.0):
    """Equation (3): sum_j g(x_{j+1}) / ||x_j - a|| over sum_j 1 / ||x_j - a||, j = 1 .. n-1."""
    return _ratio(g(x[:, 1:]), x[:, :-1] - anchor, epsilon)


def general_ratio(x, anchor, g, epsilon=0.0):
    """Equation (4): sum_j g_j({x_k | k in I_j}) / ||x_j - a|| over sum_j 1 / ||x_j - a||.

    `g(x, j)` is g_j for the 0-based position j and may use any token of the sequence. The paper prints different ranges
    for the sums, j = 2 .. n in the numerator and j = 1 .. n-1 in the denominator. They agree unless the anchor is x_1
    (the limit is then 0) or x_n. Here both sums run over all positions.
    """
    values = torch.stack([g(x, position) for position in range(x.shape[1])], dim=1)
    return _ratio(values, x - anchor, epsilon)


def composite(x, anchors, g):
    """Equation (5): g(g(x_{i-1}; x_i); x_{i+1}) where x_i and x_{i+1} are anchors."""
    which, rows = _which(x, anchors), torch.arange(len(x))
    i = (which >= 0).int().argmax(dim=1)
    return _apply(_apply(x[rows, i - 1], which[rows, i], g), which[rows, i + 1], g)


def working_memory(x, anchors, g):
    """Equation (5) with noise between the anchors: g(g(x_{i-1}; x_i); x_k) where x_i and x_k, i < k, are anchors."""
    which, rows = _which(x, anchors), torch.arange(len(x))
    is_anchor = (which >= 0).int()
    i, k = is_anchor.argmax(dim=1), x.shape[1] - 1 - is_anchor.flip(1).argmax(dim=1)
    return _apply(_apply(x[rows, i - 1], which[rows, i], g), which[rows, k], g)


def recitation(x, anchor, epsilon=0.0):
    """Equation (6): -x_n + sum_j (x_{j+1} + x_{j-1}) / ||x_j - a|| over sum_j 1 / ||x_j - a||, j = 2 .. n-1."""
    return _ratio(x[:, 2:] + x[:, :-2], x[:, 1:-1] - anchor, epsilon) - x[:, -1]


def reading_comprehension(x):
    """Equation (3) with the last token as anchor: sum_j x_{j+1} / ||x_j - x_n|| over sum_j 1 / ||x_j - x_n||.

    The question is the last token. The sums run over the anchors before it, j = 1, 3, .., and skip the items.
    """
    return _ratio(x[:, 1:-1:2], x[:, :-1:2] - x[:, -1:])


def classification(x):
    """Section 4.3: a_k where k is the arg min of |x_k - x_5|, as the limit of weights |x_k - x_5|^-p for large p."""
    distance = (x[:, :-1:2] - x[:, -1:]).abs()
    weights = (distance == distance.amin(dim=1, keepdim=True)).to(x.dtype)
    return (x[:, 1:-1:2] * weights).sum(dim=1) / weights.sum(dim=1)


def _which(x, anchors):
    """Return the index of the anchor at each position `[batch position]`, -1 for none."""
    which = torch.full(x.shape[:2], -1)
    for index, anchor in enumerate(anchors):
        which[(x == anchor).all(dim=-1)] = index
    return which


def _apply(key, anchor, g):
    """Return g(key; anchor) for each row."""
    return torch.stack([one(key) for one in g], dim=1)[torch.arange(len(key)), anchor]


def _ratio(values, offset, epsilon=0.0):
    """Return the mean of values weighted by 1 / ||offset||; if some offsets are zero, only these have weight."""
    distance = torch.linalg.vector_norm(offset, dim=-1, keepdim=True)
    zero = distance == 0
    if epsilon > 0:
        weights = 1 / (distance + epsilon)
    else:
        weights = torch.where(zero.any(dim=1, keepdim=True), zero.to(distance.dtype), 1 / distance.clamp(min=1e-300))
    return (values * weights).sum(dim=1) / weights.sum(dim=1)
