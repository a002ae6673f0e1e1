"""Chance levels: the expected score of a head that attends at random, and the threshold above which a detector fires.

A random head draws each row of its pattern independently and uniformly from all distributions over the keys that the
query may attend to. The chance level of a detector is the expected score of a random head on the given inputs. For a
detector that sums attention, this equals the score of uniform attention.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorlab.errors import SpecError


def check_shares(pattern: Float[Tensor, "*lead query key"]) -> None:
    """Raise `SpecError` for a pattern with weights outside 0..1, as linear attention has."""
    least, most = pattern.aminmax()
    if least < -1e-4 or most > 1 + 1e-4:
        remedy = "a head of linear attention has no shares to score; read the record itself"
        raise SpecError("pattern", "has weights outside 0..1", remedy)


def uniform_attention(
    length: int, causal: bool = True, lengths: Int[Tensor, "batch"] | None = None
) -> Float[Tensor, "*batch query key"]:
    """Return the pattern of uniform attention: 1 / (q + 1) for k <= q, or 1 / n for every k without a causal mask.

    For sequences padded on the right, `lengths` gives the n of each sequence, and the result has one pattern for each;
    its rows and columns at the padding are 0.

    The chance level of a detector is its score on this pattern, expanded to all sequences and one head:
    `broadcast(uniform_attention(n).expand(batch, 1, n, n), sources)`. For `OffsetScores` it is the largest score over
    the offsets. The chance level of `uniform` itself is `chance_of_uniform`.
    """
    allowed = torch.ones(length, length, device=None if lengths is None else lengths.device)
    allowed = allowed.tril() if causal else allowed
    if lengths is not None:
        inside = torch.arange(length, device=lengths.device) < lengths.unsqueeze(-1)
        allowed = allowed * inside.unsqueeze(-1) * inside.unsqueeze(-2)
    return allowed / allowed.sum(dim=-1, keepdim=True).clamp(min=1)


def chance_of_uniform(length: int, causal: bool = True) -> float:
    """Return the expected `uniform` score of a random head: the mean over queries of 1 - (1 - 1/m)^m, for m keys.

    The attention to one of m keys exceeds x with probability (1 - x)^(m - 1), so its expected excess over 1/m is
    (1 - 1/m)^m / m; the total variation distance from uniform attention is the sum of m of these. The first query of a
    causal head is left out, as in `uniform`.
    """
    if causal and length < 2:
        raise SpecError("length", "a single position leaves a causal head no choice", "give at least 2")
    keys = range(2, length + 1) if causal else [length]
    return 1 - sum((1 - 1 / m) ** m for m in keys) / len(keys)


def threshold(chance: float) -> float:
    """Return the score above which a detector fires: halfway between chance and 1.

    A head that spends a share a of its attention on what the detector measures, and spreads the rest at random, scores
    chance + a (1 - chance) on average. The detector fires for a > 1/2.
    """
    return chance + (1 - chance) / 2
