"""Geometry of what is recorded: how alike directions, heads or neurons are."""

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


def condensation(weights: Float[Tensor, "*lead input neuron"]) -> Float[Tensor, "*lead"]:
    """How far the neurons of a layer point the same way or opposite ways: 1 where all do (anchor functions, 6.2).

    The absolute cosine between the input weights of two neurons, averaged over all pairs of different neurons, each
    pair counted by the product of its norms, so that neurons that have faded away count little. Of `input` random
    directions it is about sqrt(2 / (pi input)).

    Errors: `SpecError` for a single neuron.
    """
    neurons = weights.shape[-1]
    if neurons < 2:
        raise SpecError("weights", "a single neuron has no other to be like", "give a layer of at least two neurons")
    products = weights.transpose(-1, -2) @ weights
    norms = weights.norm(dim=-2)
    pairs = ~torch.eye(neurons, dtype=torch.bool, device=weights.device)
    counted = norms.unsqueeze(-1) * norms.unsqueeze(-2)
    alike: Tensor = products.abs()[..., pairs].sum(dim=-1) / counted[..., pairs].sum(dim=-1)
    return alike
