"""Buffers of models with three layers of one head that follow two steps of a chain of tokens."""

from dataclasses import dataclass
from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.lens import ov, probe, qk
from anchorlab.lens.look.inputs import AnyModel, as_ensemble
from anchorlab.papers.retrieval.buffers.queries import (
    Queries,
    against_random,
    exchanged,
    overlap,
    subspace,
    token_queries,
)
from anchorlab.tasks import TokenRetrieval
from anchorlab.theory import retrieval_circuit

SEQUENCES = 1000  # for the probes and exchanges
STREAM = ("blocks.0.hook_resid_pre", *(f"blocks.{layer}.hook_resid_post" for layer in range(3)))
PAIRS = ((0, 1), (1, 2), (0, 2))  # of heads; the first two are successive


@dataclass(frozen=True)
class Buffers:
    """What the buffers of each member hold and do."""

    # how often a linear probe reads x_0, x_1 and x_2 from the query's stream
    decoded: Float[Tensor, "member stage value"]
    matched: Float[Tensor, "member reader"]  # how far the second and the third head match equal symbols
    # the mean squared cosine of the principal angles between the subspaces that the heads of `PAIRS` write to
    overlap: Float[Tensor, "member pair"]
    against_random: Float[Tensor, "member pair"]  # the same, divided by that of random subspaces
    dimensions: Float[Tensor, "member head"]  # of the subspace that each head writes to
    # how often the answer is the other query's once the buffer of each head is exchanged after its layer
    moved: Float[Tensor, "member head"]
    kept: Float[Tensor, "member"]  # how often the answer stays right once all but the buffer of head 1 is exchanged


def buffers(model: AnyModel, asked: Queries) -> Buffers:
    """Read the buffers of models with three layers of one head."""
    ensemble = as_ensemble(model)  # for a run, `probe` would also read its untrained members
    read = [
        probe(ensemble, asked.inputs, labels, STREAM, positions=asked.last, shuffles=1).accuracy[..., 0]
        for labels in asked.chain.unbind(dim=1)
    ]
    spaces = [[subspace(one) for one in heads] for heads in written(model)]
    into = torch.stack([torch.stack([one @ one.mT for one in heads]) for heads in spaces], dim=1)  # projectors
    outside = torch.eye(into.shape[-1]).to(into) - into[1]
    answers = [exchanged(model, asked, head, one).argmax(dim=-1) for head, one in enumerate(into)]
    rest = exchanged(model, asked, 1, outside).argmax(dim=-1)
    return Buffers(
        decoded=torch.stack(read, dim=-1),
        matched=matching(model),
        overlap=torch.stack([torch.stack([overlap(heads[a], heads[b]) for a, b in PAIRS]) for heads in spaces]),
        against_random=torch.stack(
            [torch.stack([against_random(heads[a], heads[b]) for a, b in PAIRS]) for heads in spaces]
        ),
        dimensions=torch.tensor([[float(one.shape[1]) for one in heads] for heads in spaces]),
        moved=torch.stack([(one == asked.other_chain[:, -1]).double().mean(dim=1) for one in answers], dim=1),
        kept=(rest == asked.chain[:, -1]).double().mean(dim=1),
    )


def matching(model: AnyModel) -> Float[Tensor, "member reader"]:
    """Return the matching scores of the second and the third head: the mean attention to the key of the equal symbol.

    Keys hold their symbol in the buffer of head 0; queries hold theirs as embedded, or in the buffer of head 1:

        E W_QK1 W_VO0ᵀ Eᵀ   and   E W_VO1 W_QK2 W_VO0ᵀ Eᵀ

    with the embeddings E. The score is the mean of the diagonal after a softmax over keys.
    """
    embeddings = as_ensemble(model).weights["embed.W_E"].double()
    scores, moves = (circuits(model).matrix[:, :, 0].double().unbind(dim=1) for circuits in (qk, ov))
    keys = moves[0].mT @ embeddings.mT
    products = [embeddings @ scores[1] @ keys, embeddings @ moves[1] @ scores[2] @ keys]
    return torch.stack([torch.softmax(one, -1).diagonal(dim1=-2, dim2=-1).mean(dim=-1) for one in products], dim=-1)


def written(model: AnyModel) -> Float[Tensor, "member head token width"]:
    """Return what each head adds to the stream for each attended token, minus the mean over tokens."""
    embeddings = as_ensemble(model).weights["embed.W_E"].double()
    found = embeddings.unsqueeze(1) @ ov(model).matrix[:, :, 0].double()
    return found - found.mean(dim=-2, keepdim=True)


@cache
def hand_written() -> Buffers:
    """Return the buffers of a model written by hand, with one for each step: they are separate by construction."""
    task = TokenRetrieval(chains=3, steps=2, symbols=24, implicit_curriculum=False)
    return buffers(retrieval_circuit(task), token_queries(task, SEQUENCES))
