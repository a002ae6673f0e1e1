"""Equations (1)-(4) of the anchor function paper as written: an oracle that knows nothing of tokens.

Sequences are vectors `[batch position dimension]`: one-hot, or numbers with dimension 1. The ratios of sums over
1 / ||x_j - a|| are read as limits: the terms at distance zero outweigh all others. With `epsilon` above zero,
1 / (||x_j - a|| + epsilon) is used instead, and tends to the limit.
"""

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorlab.errors import SpecError
from anchorlab.tasks.anchor.function import AnchorFunction

Vectors = Float[Tensor, "batch position dimension"]
Result = Float[Tensor, "batch dimension"]
OfKey = Callable[[Tensor], Tensor]
OfPosition = Callable[[Tensor, int], Tensor]


def identity(x: Vectors, anchor: Float[Tensor, "dimension"]) -> Result:
    """Equation (1): x_{i+1} where x_i = a."""
    return key_function(x, anchor, lambda key: key)


def key_function(x: Vectors, anchor: Float[Tensor, "dimension"], g: OfKey) -> Result:
    """Equation (2): g(x_{i+1}) where x_i = a, one and only one of x_1 .. x_{n-1}."""
    is_anchor = (x[:, :-1] == anchor).all(dim=-1)
    if not bool((is_anchor.sum(dim=1) == 1).all()):
        raise SpecError("x", "does not hold the anchor exactly once before its end", "equation (2) needs that")
    return g(x[:, 1:][is_anchor])


def key_ratio(x: Vectors, anchor: Float[Tensor, "dimension"], g: OfKey, epsilon: float = 0.0) -> Result:
    """Equation (3): sum_j g(x_{j+1}) / ||x_j - a|| over sum_j 1 / ||x_j - a||, j = 1 .. n-1."""
    return _ratio(g(x[:, 1:]), _distances(x[:, :-1], anchor), epsilon)


def general_ratio(
    x: Vectors, anchor: Float[Tensor, "dimension"], g: OfPosition, epsilon: float = 0.0, as_printed: bool = False
) -> Result:
    """Equation (4): sum_j g_j({x_k | k in I_j}) / ||x_j - a|| over sum_j 1 / ||x_j - a||.

    `g(x, j)` is g_j for the 0-based position j, from any of the sequence's tokens. The sums are printed over different
    ranges, j = 2 .. n above and j = 1 .. n-1 below, which agree unless the anchor is x_1 (the limit would be 0 there)
    or x_n; here both run over all positions, and over the printed ones with `as_printed`.
    """
    length = x.shape[1]
    values = torch.stack([g(x, position) for position in range(length)], dim=1)
    distances = _distances(x, anchor)
    if not as_printed:
        return _ratio(values, distances, epsilon)
    weights = _weights(distances, epsilon)
    return (values * weights[..., None])[:, 1:].sum(dim=1) / weights[:, :-1].sum(dim=1, keepdim=True)


def _distances(x: Vectors, anchor: Float[Tensor, "dimension"]) -> Float[Tensor, "batch position"]:
    distances: Tensor = torch.linalg.vector_norm(x - anchor, dim=-1)
    return distances


def _ratio(
    values: Float[Tensor, "batch position dimension"], distances: Float[Tensor, "batch position"], epsilon: float
) -> Result:
    weights = _weights(distances, epsilon)
    return (values * weights[..., None]).sum(dim=1) / weights.sum(dim=1, keepdim=True)


def _weights(distances: Float[Tensor, "batch position"], epsilon: float) -> Float[Tensor, "batch position"]:
    """1 / distance up to a common factor per sequence; where some distance is zero the limit leaves only those."""
    if epsilon > 0:
        return 1 / (distances + epsilon)
    zero = distances == 0
    return torch.where(zero.any(dim=1, keepdim=True), zero.to(distances.dtype), 1 / distances.clamp(min=1e-300))


def closed_form_answers(
    task: AnchorFunction, inputs: Int[Tensor, "batch position"], representation: Literal["one_hot", "number"] = "number"
) -> Int[Tensor, "batch"]:
    """A one-anchor task's answers by equation (4), for sequences that hold one anchor and its key.

    Each sequence uses the equation of the anchor that it holds. Numbers are the token ids, in float64.
    Errors: `SpecError` for a task with several anchors in one sequence.
    """
    if task.placement.anchors != 1:
        raise SpecError("placement.anchors", "is more than one", "equations (1)-(4) are for one-anchor functions")
    one_hot = representation == "one_hot"
    answers = torch.full((inputs.shape[0],), -1)
    for anchor, operation in task.operations.items():
        mine = (inputs == anchor).any(dim=1)
        offset = task.placement.offset_of(anchor)
        tokens = torch.arange(task.vocabulary.size)
        table = torch.from_numpy(operation(tokens.numpy())).clamp(0, task.vocabulary.size - 1)

        def g(x: Tensor, position: int, offset: int = offset, table: Tensor = table) -> Tensor:
            key = position + offset
            if not 0 <= key < x.shape[1]:
                return torch.zeros_like(x[:, 0])
            if one_hot:  # a permutation-like matrix: row x holds a one in column g(x)
                return x[:, key] @ torch.nn.functional.one_hot(table, x.shape[2]).to(x.dtype)
            return table[x[:, key].round().long()].to(x.dtype)

        if one_hot:
            x = torch.nn.functional.one_hot(inputs[mine], task.vocabulary.size).double()
            answers[mine] = general_ratio(
                x, x.new_zeros(x.shape[2]).index_fill(0, torch.tensor(anchor), 1.0), g
            ).argmax(1)
        else:
            x = inputs[mine].double()[..., None]
            answers[mine] = general_ratio(x, x.new_tensor([float(anchor)]), g)[:, 0].round().long()
    return answers
