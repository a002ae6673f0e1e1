"""Geometry of what is recorded: how alike two directions, or two heads, are."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from anchorlab.errors import SpecError


def cosine_similarity(
    left: Float[Tensor, "*lead row width"], right: Float[Tensor, "*lead column width"]
) -> Float[Tensor, "*lead row column"]:
    """The cosine of the angle between every row vector and every column vector; 0 for a vector of length 0."""
    return normalize(left, dim=-1) @ normalize(right, dim=-1).transpose(-1, -2)


def head_similarity(pattern: Float[Tensor, "*lead batch head query key"]) -> Float[Tensor, "*lead"]:
    """How alike the heads of one layer are, 1 for equal patterns (anchor functions, 6.2, Fig 19).

    The cosine similarity of two heads' patterns, each taken as one vector over query and key, averaged over all pairs
    of different heads and over the batch.

    Errors: `SpecError` for a single head.
    """
    heads = pattern.shape[-3]
    if heads < 2:
        raise SpecError("pattern", "a single head has no other to be like", "give a layer of at least two heads")
    similarity = cosine_similarity(pattern.flatten(-2), pattern.flatten(-2))
    pairs = torch.ones(heads, heads, device=pattern.device).triu(1).bool()
    return similarity[..., pairs].mean(dim=(-2, -1))
