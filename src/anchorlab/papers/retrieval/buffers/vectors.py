"""Buffers of models on vectors, with one head in each layer, such as those of the study `retrieval/circuits`."""

from dataclasses import dataclass
from itertools import combinations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorlab.lens import PathAttention, look, ov, path_attention, qk
from anchorlab.lens.look.inputs import AnyModel, as_ensemble
from anchorlab.papers.retrieval.buffers.queries import Queries, against_random, exchanged, subspace
from anchorlab.tasks import MinimalRetrieval
from anchorlab.training import Ensemble

RIDGE = 1e-4  # penalty over the mean variance of the stream's coordinates: fainter symbols are not readable


@dataclass(frozen=True)
class VectorBuffers:
    """What the layers of each member bring to the query, and where they write it."""

    # how much of x_0, x_1, .. a linear map reads from the query's stream, as in `share_read`; stages are the embedding
    # and each layer
    decoded: Float[Tensor, "member stage value"]
    # the overlap of what two layers write to the query, as in `queries.against_random`
    against_random: Float[Tensor, "member layer other"]
    dimensions: Float[Tensor, "member layer"]  # of the subspace that each layer writes to
    # how often the answer to each step is nearer to the other query's, once this subspace is exchanged after the layer
    moved: Float[Tensor, "member layer asked"]
    asked: tuple[int, ...]  # the steps that queries ask for, counted from 1

    @property
    def brought_by(self) -> Int[Tensor, "member step"]:
        """The layer that brings each of x_1, x_2, ..: where the share that a linear map reads of it rises most."""
        return self.decoded.diff(dim=1)[:, :, 1:].argmax(dim=1)

    @property
    def successive(self) -> Float[Tensor, "member"]:
        """The mean of `against_random` over successive layers among those that bring symbols; NaN if one brings all."""
        found = []
        for brought_by, of_layers in zip(self.brought_by, self.against_random, strict=True):
            layers = brought_by.unique()
            found.append(of_layers[layers[:-1], layers[1:]].mean())
        return torch.stack(found)

    @property
    def moved_own(self) -> Float[Tensor, "member"]:
        """How often an answer moves with the subspace of the layer that brings it, mean over answers."""
        layers = self.brought_by[:, [step - 1 for step in self.asked]]
        return self.moved.gather(1, layers.unsqueeze(1)).squeeze(1).mean(dim=1)

    @property
    def moved_later(self) -> Float[Tensor, "member"]:
        """How often answers that later layers bring move with the layer that brings x_1, on average; NaN if none."""
        first = self.brought_by[:, :1]
        moved = self.moved.gather(1, first.unsqueeze(2).expand(-1, -1, len(self.asked))).squeeze(1)
        later = self.brought_by[:, [step - 1 for step in self.asked]] > first
        return torch.where(later, moved, torch.nan).nanmean(dim=1)


def vector_buffers(model: AnyModel, asked: Queries, steps: tuple[int, ...]) -> VectorBuffers:
    """Read the buffers of models with one head in each layer, whose queries ask for the given steps."""
    layers = range(len(ov(model).matrix[0]))
    stream = ["blocks.0.hook_resid_pre", *(f"blocks.{layer}.hook_resid_post" for layer in layers)]
    writes = [f"blocks.{layer}.hook_attn_out" for layer in layers]
    record = look(model, asked.inputs, [*stream, *writes], output=False)
    seen = {site: record[site][:, :, -1] for site in record}
    values = asked.chain.unbind(dim=1)
    added = torch.stack([seen[site].double() for site in writes], dim=1)
    spaces = [[subspace(one) for one in of_layers] for of_layers in added - added.mean(dim=2, keepdim=True)]
    pairs = torch.zeros(len(spaces), len(layers), len(layers), dtype=torch.float64)
    for member, of_layers in enumerate(spaces):
        for one, other in combinations(layers, 2):
            pairs[member, one, other] = pairs[member, other, one] = against_random(of_layers[one], of_layers[other])
    moved = [
        nearer_to_other(
            exchanged(model, asked, layer, torch.stack([bases[layer] @ bases[layer].mT for bases in spaces])),
            *(chain[:, list(steps)] for chain in (asked.chain, asked.other_chain)),
        )
        for layer in layers
    ]
    return VectorBuffers(
        decoded=torch.stack([torch.stack([share_read(seen[site], one) for one in values], -1) for site in stream], 1),
        against_random=pairs,
        dimensions=torch.tensor([[float(one.shape[1]) for one in of_layers] for of_layers in spaces]),
        moved=torch.stack(moved, dim=1),
        asked=steps,
    )


def share_read(
    values: Float[Tensor, "member batch width"], target: Float[Tensor, "batch feature"]
) -> Float[Tensor, "member"]:
    """Return the share of the target's variance that a linear map of the values explains on held-out sequences.

    Each half of the sequences is predicted by ridge regression on the other. At most 1, and about 0 or a little less
    if there is nothing to read.
    """
    values, target = values.double(), target.double()
    halves, found = values.shape[1] // 2, []
    for fit, held in ((slice(None, halves), slice(halves, None)), (slice(halves, None), slice(None, halves))):
        centre, level = values[:, fit].mean(dim=1, keepdim=True), target[fit].mean(dim=0)
        inputs = values[:, fit] - centre
        squares = inputs.mT @ inputs
        penalty = RIDGE * squares.diagonal(dim1=-2, dim2=-1).mean(dim=-1)[:, None, None] * torch.eye(len(squares[0]))
        weights = torch.linalg.solve(squares + penalty, inputs.mT @ (target[fit] - level))
        wrong = target[held] - level - (values[:, held] - centre) @ weights
        found.append(1 - wrong.square().sum(dim=(1, 2)) / (target[held] - level).square().sum())
    return torch.stack(found).mean(dim=0)


def nearer_to_other(
    outputs: Float[Tensor, "member batch output"],
    own: Float[Tensor, "batch asked feature"],
    other: Float[Tensor, "batch asked feature"],
) -> Float[Tensor, "member asked"]:
    """Return how often the answer to each step is nearer to the other query's than to its own."""
    answers = outputs.reshape(*outputs.shape[:-1], *own.shape[1:])
    to_own, to_other = ((answers - one).square().sum(dim=-1) for one in (own, other))
    share: Tensor = (to_other < to_own).double().mean(dim=1)
    return share


def pair_layers(
    ensemble: Ensemble, task: MinimalRetrieval, n: int
) -> tuple[Int[Tensor, "member"], Int[Tensor, "member"]]:
    """Return the layer that joins first pairs and the later one that reads them, by mean attention along both paths.

    In the first, a pair's second symbol attends to the pair's first; in the other, queries attend to the second.
    """
    batch = task.sample("test", n, seed=1)
    roles = task.roles(batch)
    layers = range(len(ov(ensemble).matrix[0]))
    paths = {"joins": ("x1 of pair 1", "x0 of pair 1"), "reads": ("query x0", "x1 of pair 1")}
    asked = {
        f"{name} {layer}": PathAttention(layer, 0, roles[query], roles[key])
        for name, (query, key) in paths.items()
        for layer in layers
    }
    found = path_attention(batch.inputs, asked)(ensemble)
    joins, reads = (torch.stack([found[f"{name} {layer}"] for layer in layers], dim=1) for name in paths)
    return first_then_second(joins, reads)


def first_then_second(
    first: Float[Tensor, "member layer"], second: Float[Tensor, "member layer"]
) -> tuple[Int[Tensor, "member"], Int[Tensor, "member"]]:
    """Return the layers a < b with the largest product of `first` in layer a and `second` in layer b."""
    layers = first.shape[1]
    products = torch.triu(first.unsqueeze(2) * second.unsqueeze(1), diagonal=1).flatten(1)
    best = products.argmax(dim=1)
    return best // layers, best % layers


def alignment(
    model: AnyModel, features: int, joins: Int[Tensor, "member"], reads: Int[Tensor, "member"]
) -> Float[Tensor, "member"]:
    """Return how well the scores of the layer that reads match equal symbols, from -1 to 1; about 0 for random weights.

    The kernel `E W_QK W_VOᵀ Eᵀ`, `[feature feature]`, scores the embedded symbol of a query against the symbol of a key
    as the layer that joins pairs writes it; each layer's norm subtracts the mean and applies its gains. A multiple of
    the identity matches equal symbols. The value is the cosine of the angle between the kernel and the identity.
    """
    weights = as_ensemble(model).weights
    embedded = weights["embed.W_E"][:, :features].double()
    member = torch.arange(len(embedded))
    scores, moves = (circuits(model).matrix[:, :, 0].double() for circuits in (qk, ov))
    gains = torch.stack([weights[f"blocks.{layer}.ln1.w"].double() for layer in range(scores.shape[1])], dim=1)

    def normed(rows: Tensor, layers: Tensor) -> Tensor:
        return (rows - rows.mean(dim=-1, keepdim=True)) * gains[member, layers].unsqueeze(1)

    keys = normed(normed(embedded, joins) @ moves[member, joins], reads)
    kernel = normed(embedded, reads) @ scores[member, reads] @ keys.mT
    trace = kernel.diagonal(dim1=-2, dim2=-1).sum(dim=-1)
    cosine: Tensor = trace / (features**0.5 * kernel.square().sum(dim=(1, 2)).sqrt())
    return cosine
