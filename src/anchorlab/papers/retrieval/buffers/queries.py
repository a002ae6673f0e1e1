"""Sequences that ask for one chain or another, subspaces of the query's stream, and outputs once one is exchanged."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from anchorlab.lens import Intervention, Operand, look
from anchorlab.lens.look.inputs import AnyModel
from anchorlab.tasks import MinimalRetrieval, TokenRetrieval
from anchorlab.tasks.retrieval import StepRetrieval

ENERGY = 0.99  # a subspace holds this share of the squares of what is written


@dataclass(frozen=True)
class Queries:
    """Sequences whose last position is a query, and the same with the query of another chain."""

    inputs: Shaped[Tensor, "batch position *feature"]  # they differ at the last position alone
    others: Shaped[Tensor, "batch position *feature"]
    chain: Shaped[Tensor, "batch value *symbol"]  # the symbols x_0, x_1, .. of the query's chain
    other_chain: Shaped[Tensor, "batch value *symbol"]  # the same for the other query's chain

    @property
    def last(self) -> Shaped[Tensor, "scored"]:
        """The position of the query."""
        return torch.tensor([self.inputs.shape[1] - 1])


def token_queries(task: StepRetrieval | TokenRetrieval, n: int) -> Queries:
    """Draw `n` test sequences of chains of tokens."""
    batch = task.sample("test", n, seed=1)
    symbols, asked = batch.latents["symbols"], batch.latents["queries"][:, -1]
    row = torch.arange(n)
    chain, other = symbols[row, :, asked], symbols[row, :, (asked + 1) % task.chains]
    others = batch.inputs.clone()
    others[:, -1] = other[:, 0]
    return Queries(batch.inputs, others, chain, other)


def vector_queries(task: MinimalRetrieval, n: int) -> Queries:
    """Draw `n` test sequences of chains of vectors; the other chain is the second-to-last query's."""
    batch = task.sample("test", n, seed=1)
    symbols, order, row = batch.latents["symbols"], batch.latents["order"][:, 0, : task.chains], torch.arange(n)
    chain, other = symbols[row, order[:, -1]], symbols[row, order[:, -2]]
    others = batch.inputs.clone()
    others[:, -1, : task.features] = other[:, 0]
    return Queries(batch.inputs, others, chain, other)


def exchanged(
    model: AnyModel, asked: Queries, layer: int, projector: Float[Tensor, "member width width"]
) -> Float[Tensor, "member batch output"]:
    """Return the outputs at the query if its stream after a layer gets, in a subspace, the other query's values."""
    site, last = f"blocks.{layer}.hook_resid_post", asked.last
    own, other = (look(model, inputs, site, output=False)[site][:, :, -1:] for inputs in (asked.inputs, asked.others))
    new = own + ((other - own).double() @ projector.unsqueeze(1)).to(own)
    values = Operand(values=new, axes=("member", "batch", "position", "width"))
    # Both streams may agree in the subspace, for example if the head that writes to it attends by position.
    swap = Intervention(site=site, where={"position": -1}, rule="replace", operand=values, may_do_nothing=True)
    return look(model, asked.inputs, interventions=swap, positions=last)["output"][:, :, 0]


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
