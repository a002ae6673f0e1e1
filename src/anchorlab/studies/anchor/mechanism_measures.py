"""What the parts of a two-layer model do to solve the identity anchor function, as numbers.

Source: anchor functions, appendix B, Figures 20 to 27.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from anchorlab.lens import Intervention, Operand, cosine_similarity, look, position_directions, unembed
from anchorlab.tasks import Batch
from anchorlab.training import Ensemble

STAGES = ("input", "first linear", "ReLU", "second linear", "residual", "layer norm")
"""The six stages of a feed-forward network (appendix B.3)."""

INPUTS = ("X(1)", "Xpr", "X(1) + Xpr")
"""What is sent through it: the stream before attention, what attention adds, and their sum (Fig 20 and 24)."""

Rows = Float[Tensor, "member batch position width"]
PerMember = Float[Tensor, "member"]


@dataclass(frozen=True)
class FirstAttention:
    """Layer 1's attention (appendix B.2), each `[member]` unless said otherwise.

    positions_apart, tokens_apart: total variation between the rows of its map and those of positions, or tokens, alone
    queries_to_keys: cosine of Q(Xpos) and K(Xpos), `[member query key]`
    matched: share of positions i > 0 whose query is nearest in direction to the key of i - 1
    shifted_agrees: predictions that stay with the exact shift in place of the map
    unnormalised_agrees: predictions that stay without the layer norm after attention
    """

    positions_apart: PerMember
    tokens_apart: PerMember
    queries_to_keys: Float[Tensor, "member query key"]
    matched: PerMember
    shifted_agrees: PerMember
    unnormalised_agrees: PerMember


@dataclass(frozen=True)
class Stages:
    """Directions along the feed-forward network (appendix B.3), for one of `INPUTS`.

    similarity: cosine between positions, mean over sequences whose key stands where the paper's does,
        `[member stage query key]`
    others: mean cosine between positions other than the key's, `[member stage]`
    key: mean cosine between the key's position and the others, `[member stage]`
    outputs: what the last stage gives, `[member batch position width]`
    """

    similarity: Float[Tensor, "member stage query key"]
    others: Float[Tensor, "member stage"]
    key: Float[Tensor, "member stage"]
    outputs: Rows


@dataclass(frozen=True)
class SecondAttention:
    """Layer 2's attention (appendix B.4), each `[member]`; others are the positions that do not hold the key.

    to_key: share of rows whose greatest score, before mask and softmax, is the key's column
    queries, keys: mean cosine between the queries, or the keys, of the others
    opposite: mean cosine between a query and a key of the others
    same_side: share of sequences in which the others' mean query and the key's query make a positive product
    longer: norm of the others' queries over that of the key's, mean over sequences
    """

    to_key: PerMember
    queries: PerMember
    keys: PerMember
    opposite: PerMember
    same_side: PerMember
    longer: PerMember


@dataclass(frozen=True)
class Projection:
    """What the others' rows give through the projection (appendix B.5): mean probabilities.

    probabilities: `[member output]`
    favour: mean probability of an item over that of another token, `[member]`
    evenness: entropy over the items over its greatest value, `[member]`
    """

    probabilities: Float[Tensor, "member output"]
    favour: PerMember
    evenness: PerMember


def key_positions(batch: Batch) -> Tensor:
    """The position of each sequence's key, `[batch]`."""
    return batch.latents["key_positions"][:, 0]


def first_attention(ensemble: Ensemble, batch: Batch) -> FirstAttention:
    """Where layer 1's map comes from, and what becomes of predictions without its fine structure."""
    pattern, mid, norm = "blocks.0.attn.hook_pattern", "blocks.0.hook_resid_mid", "blocks.0.ln1.hook_normalized"
    length = batch.inputs.shape[1]
    shift = Operand(values=torch.diag(torch.ones(length - 1), -1), axes=("query", "key"))
    seen = look(
        ensemble,
        batch.inputs,
        record=[pattern, mid],
        candidates={
            "whole": [],
            "positions": [Intervention(site="hook_embed", rule="zero", may_do_nothing=True)],
            "tokens": [Intervention(site="hook_pos_embed", rule="zero", may_do_nothing=True)],
            "shift": [Intervention(site=pattern, rule="replace", operand=shift)],
        },
    )
    whole = seen.candidate("whole")
    stream = Operand(values=whole[mid], axes=("member", "batch", "position", "width"))
    bare = look(ensemble, batch.inputs, interventions=[Intervention(site=norm, rule="replace", operand=stream)])
    answers = whole["output"][:, :, -1].argmax(dim=-1)
    shifted, unnormalised = (one["output"][:, :, -1].argmax(dim=-1) for one in (seen.candidate("shift"), bare))
    directions = position_directions(ensemble)
    return FirstAttention(
        positions_apart=_apart(whole[pattern], seen.candidate("positions")[pattern]),
        tokens_apart=_apart(whole[pattern], seen.candidate("tokens")[pattern]),
        queries_to_keys=directions.similarity[:, 0, 0],
        matched=directions.nearest(1)[:, 0, 0],
        shifted_agrees=(shifted == answers).float().mean(dim=-1),
        unnormalised_agrees=(unnormalised == answers).float().mean(dim=-1),
    )


def _apart(left: Tensor, right: Tensor) -> Tensor:
    """Total variation between rows of two patterns, but for the first, which has no choice: `[member]`."""
    return ((left - right).abs().sum(dim=-1) / 2)[..., 1:].mean(dim=(1, 2, 3))


def feed_forward_stages(weights: Mapping[str, Tensor], block: int, rows: Rows) -> list[Tensor]:
    """Rows sent through a block's feed-forward network, residual connection and layer norm: what `STAGES` names.

    `weights` are stacked, `[member ...]`.
    """
    name = f"blocks.{block}"
    first = rows @ weights[f"{name}.mlp.W_in"].unsqueeze(1)
    active = functional.relu(first)
    second = active @ weights[f"{name}.mlp.W_out"].unsqueeze(1)
    summed = rows + second
    scale, offset = (weights[f"{name}.ln2.{part}"][:, None, None] for part in "wb")
    return [rows, first, active, second, summed, functional.layer_norm(summed, summed.shape[-1:]) * scale + offset]


def follow_stages(ensemble: Ensemble, batch: Batch, middle: int = 5) -> dict[str, Stages]:
    """Directions along layer 1's feed-forward network for each of `INPUTS`; `middle` is the paper's key position."""
    before, added = "blocks.0.hook_resid_pre", "blocks.0.hook_attn_out"
    record = look(ensemble, batch.inputs, record=[before, added])
    sent = dict(zip(INPUTS, (record[before], record[added], record[before] + record[added]), strict=True))
    keys = key_positions(batch)
    found = {}
    for name, rows in sent.items():
        stages = feed_forward_stages(ensemble.weights, 0, rows)
        similar = [cosine_similarity(stage, stage) for stage in stages]
        split = [split_similarity(one, keys) for one in similar]
        found[name] = Stages(
            similarity=torch.stack([one[:, keys == middle].mean(dim=1) for one in similar], dim=1),
            others=torch.stack([others for others, _ in split], dim=1),
            key=torch.stack([key for _, key in split], dim=1),
            outputs=stages[-1],
        )
    return found


def split_similarity(similarity: Float[Tensor, "member batch query key"], keys: Tensor) -> tuple[Tensor, Tensor]:
    """Mean similarity among the positions other than the key's, and between these and the key's, each `[member]`."""
    length = similarity.shape[-1]
    others = torch.arange(length) != keys.unsqueeze(-1)
    pairs = others.unsqueeze(-1) & others.unsqueeze(-2) & ~torch.eye(length, dtype=torch.bool)
    with_key = similarity[:, torch.arange(len(keys)), keys]
    return similarity[:, pairs].mean(dim=-1), with_key[:, others].mean(dim=-1)


def spread_and_distance(rows: Rows, keys: Tensor) -> tuple[PerMember, PerMember]:
    """How far the others lie from their centre, and the key's row from it, each as root mean square over sequences."""
    each, count = torch.arange(len(keys)), rows.shape[2] - 1
    key = rows[:, each, keys]
    centre = (rows.sum(dim=2) - key) / count
    squares = (rows - centre.unsqueeze(2)).square().sum(dim=-1)
    of_key = squares[:, each, keys]
    of_others = (squares.sum(dim=-1) - of_key) / count
    return of_others.mean(dim=-1).sqrt(), of_key.mean(dim=-1).sqrt()


def second_attention(ensemble: Ensemble, batch: Batch) -> SecondAttention:
    """What makes layer 2 read the key, from its queries and keys before mask and softmax."""
    sites = [f"blocks.1.attn.hook_{name}" for name in "qk"]
    record = look(ensemble, batch.inputs, record=sites)
    queries, keys = (record[site][:, :, :, 0] for site in sites)
    return read_directions(queries, keys, key_positions(batch))


def read_directions(queries: Rows, keys: Rows, at: Tensor) -> SecondAttention:
    """The numbers of `SecondAttention` from one head's queries and keys, and the positions of the keys, `[batch]`."""
    each, length = torch.arange(len(at)), queries.shape[2]
    others = torch.arange(length) != at.unsqueeze(-1)
    scores = queries @ keys.mT
    key_query = queries[:, each, at]
    mean_query = (queries.sum(dim=2) - key_query) / (length - 1)
    norms = queries.norm(dim=-1)
    longer = ((norms * others).sum(dim=-1) / (length - 1)) / norms[:, each, at].clamp(min=1e-12)
    across = cosine_similarity(queries, keys)[:, others.unsqueeze(-1) & others.unsqueeze(-2)]
    return SecondAttention(
        to_key=(scores.argmax(dim=-1) == at.unsqueeze(-1)).float().mean(dim=(1, 2)),
        queries=split_similarity(cosine_similarity(queries, queries), at)[0],
        keys=split_similarity(cosine_similarity(keys, keys), at)[0],
        opposite=across.mean(dim=-1),
        same_side=((mean_query * key_query).sum(dim=-1) > 0).float().mean(dim=-1),
        longer=longer.mean(dim=-1),
    )


def project_others(ensemble: Ensemble, batch: Batch, items: range) -> Projection:
    """The probabilities that rows without the key give through the projection, straight from layer 1."""
    site = "blocks.1.hook_resid_pre"
    rows = look(ensemble, batch.inputs, record=[site])[site]
    chosen = rows[:, torch.arange(rows.shape[2]) != key_positions(batch).unsqueeze(-1)]
    probabilities = torch.softmax(unembed(ensemble, chosen), dim=-1)
    on_items = probabilities[..., items.start : items.stop]
    together = on_items.sum(dim=-1)
    among = on_items / together.unsqueeze(-1)
    others = probabilities.shape[-1] - len(items)
    entropy = torch.special.entr(among).sum(dim=-1)
    return Projection(
        probabilities=probabilities.mean(dim=1),
        favour=(together.mean(dim=-1) / len(items)) / ((1 - together.mean(dim=-1)) / others),
        evenness=(entropy / torch.log(torch.tensor(float(len(items))))).mean(dim=-1),
    )
