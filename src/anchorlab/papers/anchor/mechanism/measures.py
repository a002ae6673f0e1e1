"""What the parts of a two-layer model do to solve the identity anchor function, as numbers.

Source: anchor functions, appendix B, Figures 20 to 27.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor
from torch.nn import functional

from anchorlab.lens import Intervention, Operand, cosine_similarity, look, position_directions, unembed
from anchorlab.papers.anchor.settings import ITEMS
from anchorlab.tasks import Batch
from anchorlab.training import Ensemble

STAGES = ("input", "first linear", "ReLU", "second linear", "residual", "layer norm")
"""The six stages of a feed-forward network (appendix B.3)."""

SECOND_LINEAR = STAGES.index("second linear")

STREAM, ADDED, SUM = INPUTS = ("X(1)", "Xpr", "X(1) + Xpr")
"""What is sent through it: the stream before attention, what attention adds, and their sum (Fig 20 and 24)."""

MIDDLE = 5  # the key's position in the paper's figures, counted from 0
LOOKED_AT = 500  # test sequences

Rows = Float[Tensor, "member batch position width"]
PerMember = Float[Tensor, "member"]
Keys = Int[Tensor, "batch"]


@dataclass(frozen=True)
class FirstAttention:
    """Layer 0's attention (appendix B.2)."""

    positions_apart: PerMember  # total variation between the rows of its map and those from positions alone
    tokens_apart: PerMember  # the same from tokens alone
    queries_to_keys: Float[Tensor, "member query key"]  # cosine of Q(Xpos) and K(Xpos)
    matched: PerMember  # share of positions i > 0 whose query is nearest in direction to the key of i - 1
    shifted_agrees: PerMember  # share of predictions that stay with the exact shift in place of the map
    unnormalised_agrees: PerMember  # share of predictions that stay without the layer norm after attention


@dataclass(frozen=True)
class Stages:
    """Directions along layer 0's feed-forward network (appendix B.3); `others` are the positions without the key."""

    similarity: Float[Tensor, "member stage query key"]  # cosine, mean over sequences with the key at `MIDDLE`
    others: Float[Tensor, "member stage"]  # mean cosine between the others
    key: Float[Tensor, "member stage"]  # mean cosine between the key's position and the others
    norms: Float[Tensor, "member position"]  # of the second linear output, mean over the same sequences
    norm: PerMember  # the same, mean over all positions and sequences
    outputs: Rows  # of the last stage
    spread: PerMember  # how far the others' outputs lie from their centre
    distance: PerMember  # how far the key's output lies from it

    @property
    def aligned(self) -> PerMember:
        """The mean cosine between positions without the key, after the last stage."""
        return self.others[:, -1]

    @property
    def apart(self) -> PerMember:
        """By how much `aligned` exceeds the absolute cosine between the key's position and the others.

        1 for parallel others and an orthogonal key, 0 where nothing sets the key apart.
        """
        return self.others[:, -1] - self.key[:, -1].abs()


@dataclass(frozen=True)
class SecondAttention:
    """Layer 1's attention (appendix B.4); "others" are the positions without the key."""

    to_key: PerMember  # share of rows whose greatest score, before mask and softmax, is in the key's column
    queries: PerMember  # mean cosine between the others' queries
    keys: PerMember  # mean cosine between the others' keys
    opposite: PerMember  # mean cosine between a query and a key of the others
    same_side: PerMember  # share of sequences where the others' mean query and the key's have a positive product
    longer: PerMember  # norm of the others' queries over the key's, mean over sequences


@dataclass(frozen=True)
class Projection:
    """The output of the projection for rows without the key (appendix B.5)."""

    probabilities: Float[Tensor, "member output"]  # mean over rows
    favour: PerMember  # share of pairs of an item and another token in which the item is likelier
    evenness: PerMember  # entropy over the items, over its greatest value


def key_positions(batch: Batch) -> Keys:
    """Return the position of each sequence's key."""
    return batch.latents["key_positions"][:, 0]


def first_attention(ensemble: Ensemble, batch: Batch) -> FirstAttention:
    """Measure what layer 0's map depends on, and how many predictions survive without its fine structure."""
    pattern, mid, norm = "blocks.0.attn.hook_pattern", "blocks.0.hook_resid_mid", "blocks.0.ln1.hook_normalized"
    shift = Operand(values=torch.diag(torch.ones(batch.inputs.shape[1] - 1), -1), axes=("query", "key"))
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
    answers, shifted, unnormalised = (
        one["output"][:, :, -1].argmax(dim=-1) for one in (whole, seen.candidate("shift"), bare)
    )
    directions = position_directions(ensemble)
    return FirstAttention(
        positions_apart=rows_apart(whole[pattern], seen.candidate("positions")[pattern]).mean(dim=(1, 2, 3)),
        tokens_apart=rows_apart(whole[pattern], seen.candidate("tokens")[pattern]).mean(dim=(1, 2, 3)),
        queries_to_keys=directions.similarity[:, 0, 0],
        matched=directions.nearest(1)[:, 0, 0],
        shifted_agrees=(shifted == answers).float().mean(dim=-1),
        unnormalised_agrees=(unnormalised == answers).float().mean(dim=-1),
    )


def rows_apart(
    left: Float[Tensor, "*#lead query key"], right: Float[Tensor, "*#lead query key"]
) -> Float[Tensor, "*#lead following"]:
    """Return the total variation between rows of patterns `[... query key]`, without the first, which has no choice."""
    return ((left - right).abs().sum(dim=-1) / 2)[..., 1:]


def feed_forward_stages(
    weights: Mapping[str, Shaped[Tensor, "member ..."]], block: int, rows: Rows
) -> list[Float[Tensor, "member batch position _"]]:
    """Send rows through a block's feed-forward network, residual connection and layer norm; return the six `STAGES`.

    `weights` are stacked, `[member ...]`; each stage is `[member batch position neuron]` or `[... width]`.
    """
    name = f"blocks.{block}"
    first = rows @ weights[f"{name}.mlp.W_in"].unsqueeze(1)
    active = functional.relu(first)
    second = active @ weights[f"{name}.mlp.W_out"].unsqueeze(1)
    summed = rows + second
    scale, offset = (weights[f"{name}.ln2.{part}"][:, None, None] for part in "wb")
    return [rows, first, active, second, summed, functional.layer_norm(summed, summed.shape[-1:]) * scale + offset]


def follow_stages(ensemble: Ensemble, batch: Batch) -> dict[str, Stages]:
    """Read directions along layer 0's feed-forward network for each of `INPUTS`."""
    before, added = "blocks.0.hook_resid_pre", "blocks.0.hook_attn_out"
    record = look(ensemble, batch.inputs, record=[before, added])
    sent = {STREAM: record[before], ADDED: record[added], SUM: record[before] + record[added]}
    keys = key_positions(batch)
    found = {}
    for name, rows in sent.items():
        stages = feed_forward_stages(ensemble.weights, 0, rows)
        norms = stages[SECOND_LINEAR].norm(dim=-1)  # [member batch position]
        similar = [cosine_similarity(stage, stage) for stage in stages]
        others, key = zip(*(split_similarity(one, keys) for one in similar), strict=True)
        spread, distance = spread_and_distance(stages[-1], keys)
        found[name] = Stages(
            similarity=torch.stack([one[:, keys == MIDDLE].mean(dim=1) for one in similar], dim=1),
            others=torch.stack(others, dim=1),
            key=torch.stack(key, dim=1),
            norms=norms[:, keys == MIDDLE].mean(dim=1),
            norm=norms.mean(dim=(1, 2)),
            outputs=stages[-1],
            spread=spread,
            distance=distance,
        )
    return found


def share_of_first(whole: PerMember, without_first: PerMember, without_second: PerMember) -> PerMember:
    """Return the share of a joint effect due to the first of two parts, from the changes when either is left out.

    With changes a and b this is a / (a + b): 1 if only the first matters, 0 if only the second, one half if the changes
    are equal or both zero.
    """
    first, second = (whole - without_first).abs(), (whole - without_second).abs()
    changed = first + second
    return torch.where(changed > 0, first / changed, torch.tensor(0.5))


def split_similarity(similarity: Float[Tensor, "member batch query key"], keys: Keys) -> tuple[PerMember, PerMember]:
    """Return the mean similarity among positions without the key, and between these and the key's position."""
    length = similarity.shape[-1]
    others = torch.arange(length) != keys.unsqueeze(-1)
    pairs = others.unsqueeze(-1) & others.unsqueeze(-2) & ~torch.eye(length, dtype=torch.bool)
    with_key = similarity[:, torch.arange(len(keys)), keys]
    return similarity[:, pairs].mean(dim=-1), with_key[:, others].mean(dim=-1)


def spread_and_distance(rows: Rows, keys: Keys) -> tuple[PerMember, PerMember]:
    """Return the root mean square distances of rows without the key, and of the key's row, from the former's centre."""
    each, count = torch.arange(len(keys)), rows.shape[2] - 1
    centre = (rows.sum(dim=2) - rows[:, each, keys]) / count
    squares = (rows - centre.unsqueeze(2)).square().sum(dim=-1)
    of_key = squares[:, each, keys]
    of_others = (squares.sum(dim=-1) - of_key) / count
    return of_others.mean(dim=-1).sqrt(), of_key.mean(dim=-1).sqrt()


def second_attention(ensemble: Ensemble, batch: Batch) -> SecondAttention:
    """Measure why layer 1 attends to the key, from its queries and keys before mask and softmax."""
    sites = [f"blocks.1.attn.hook_{name}" for name in "qk"]
    record = look(ensemble, batch.inputs, record=sites)
    queries, keys = (record[site][:, :, :, 0] for site in sites)
    return read_directions(queries, keys, key_positions(batch))


def read_directions(queries: Rows, keys: Rows, at: Keys) -> SecondAttention:
    """Measure the directions of one head's queries and keys; `at` holds the position of each sequence's key."""
    each, length = torch.arange(len(at)), queries.shape[2]
    others = torch.arange(length) != at.unsqueeze(-1)
    key_query = queries[:, each, at]
    mean_query = (queries.sum(dim=2) - key_query) / (length - 1)
    norms = queries.norm(dim=-1)
    longer = ((norms * others).sum(dim=-1) / (length - 1)) / norms[:, each, at].clamp(min=1e-12)
    across = cosine_similarity(queries, keys)[:, others.unsqueeze(-1) & others.unsqueeze(-2)]
    return SecondAttention(
        to_key=((queries @ keys.mT).argmax(dim=-1) == at.unsqueeze(-1)).float().mean(dim=(1, 2)),
        queries=split_similarity(cosine_similarity(queries, queries), at)[0],
        keys=split_similarity(cosine_similarity(keys, keys), at)[0],
        opposite=across.mean(dim=-1),
        same_side=((mean_query * key_query).sum(dim=-1) > 0).float().mean(dim=-1),
        longer=longer.mean(dim=-1),
    )


def project_others(ensemble: Ensemble, batch: Batch) -> Projection:
    """Measure the probabilities that the projection gives for layer 0's rows without the key."""
    site = "blocks.1.hook_resid_pre"
    rows = look(ensemble, batch.inputs, record=[site])[site]
    chosen = rows[:, torch.arange(rows.shape[2]) != key_positions(batch).unsqueeze(-1)]
    probabilities = torch.softmax(unembed(ensemble, chosen), dim=-1)
    on_items = probabilities[..., ITEMS.start : ITEMS.stop]
    others = torch.cat([probabilities[..., : ITEMS.start], probabilities[..., ITEMS.stop :]], dim=-1)
    entropy = torch.special.entr(on_items / on_items.sum(dim=-1, keepdim=True)).sum(dim=-1)
    return Projection(
        probabilities=probabilities.mean(dim=1),
        favour=share_greater(on_items, others).mean(dim=-1),
        evenness=(entropy / torch.log(torch.tensor(float(len(ITEMS))))).mean(dim=-1),
    )


def share_greater(left: Float[Tensor, "*lead one"], right: Float[Tensor, "*lead other"]) -> Float[Tensor, "*lead"]:
    """Return the share of pairs of a left and a right value in which the left value is greater.

    Equal values count half.
    """
    ordered = right.sort(dim=-1).values
    below, up_to = (torch.searchsorted(ordered, left.contiguous(), right=equal) for equal in (False, True))
    return (below + up_to).float().mean(dim=-1) / 2 / right.shape[-1]
