"""Subspaces that heads write to, and the principal angles between them."""

import torch
from jaxtyping import Float
from torch import Tensor

ENERGY = 0.99  # a subspace holds this share of the squares of what is written


def subspace(rows: Float[Tensor, "token width"]) -> Float[Tensor, "width dimension"]:
    """Return an orthonormal basis of the smallest principal subspace that holds `ENERGY` of the rows' squares."""
    _, values, directions = torch.linalg.svd(rows, full_matrices=False)
    share = values.square().cumsum(dim=0) / values.square().sum()
    basis: Tensor = directions[: int((share < ENERGY).sum()) + 1].mT
    return basis


def overlap(left: Float[Tensor, "width one"], right: Float[Tensor, "width other"]) -> Float[Tensor, ""]:
    """Return the mean squared cosine of the principal angles between two orthonormal bases, from 0 to 1."""
    cosines: Tensor = torch.linalg.svdvals(left.mT @ right)
    return cosines.square().mean()


def against_random(left: Float[Tensor, "width one"], right: Float[Tensor, "width other"]) -> Float[Tensor, ""]:
    """Return the overlap of two subspaces, divided by the expected overlap of random ones of the same dimensions.

    The expected overlap is the larger dimension divided by the width: the squared cosines sum to the trace of the
    product of both projectors, whose expected value is the product of the dimensions divided by the width.
    """
    return overlap(left, right) * left.shape[0] / max(left.shape[1], right.shape[1])
