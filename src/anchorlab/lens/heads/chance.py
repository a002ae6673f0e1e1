"""Chance: what a head scores that attends at random, and above which score it is said to do a thing.

A random head is one whose rows are drawn, each by itself, so that all ways to spread attention over the keys which the
query may look at are equally likely. The chance level of a detector is its expected score for the inputs at hand. Where
the score is a sum of attention, that is the score of the head that attends to all these keys alike.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.errors import SpecError


def uniform_attention(length: int, causal: bool = True) -> Float[Tensor, "query key"]:
    """The pattern of a head that attends alike to every key it may look at: 1 / (q + 1) for k <= q, or 1 / n.

    A detector's chance level is its score of this pattern, given for each sequence and with an axis for a single head:
    `broadcast(uniform_attention(n).expand(batch, 1, n, n), sources)`. A profile's is the greatest over its offsets.
    Only `uniform` has another, `chance_of_uniform`.
    """
    allowed = torch.ones(length, length)
    allowed = allowed.tril() if causal else allowed
    return allowed / allowed.sum(dim=-1, keepdim=True)


def chance_of_uniform(length: int, causal: bool = True) -> float:
    """The expected `uniform` score of a random head: the mean over queries of 1 - (1 - 1/m)^m, with m keys to look at.

    The attention to one of m keys exceeds x with probability (1 - x)^(m - 1), so that its expected excess over 1/m is
    (1 - 1/m)^m / m; the distance from uniform attention adds up m of these. As in `uniform`, the first query of a
    causal head is left out.

    Errors: `SpecError` for a causal head on a single position.
    """
    if causal and length < 2:
        raise SpecError("length", "a single position leaves a causal head no choice", "give at least 2")
    keys = range(2, length + 1) if causal else [length]
    return 1 - sum((1 - 1 / m) ** m for m in keys) / len(keys)


def threshold(chance: float) -> float:
    """Above which score a head is said to do a thing: halfway between chance and 1.

    A head that does it with a share a of its attention, and spreads the rest at random, scores chance + a (1 - chance)
    on average: the threshold asks for more than half.
    """
    return chance + (1 - chance) / 2
