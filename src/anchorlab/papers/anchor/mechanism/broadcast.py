"""Layer 1's attention: how it follows the anchor, and why its scores are greatest in the key's column.

Source: anchor functions, section 5.1 and appendix B.4, Figures 25 and 26.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorlab.findings import Map, MapFigure, Scatter, ScatterFigure, grid, numbers
from anchorlab.lens import cosine_similarity, look, principal_components
from anchorlab.papers.anchor.mechanism.rows import (
    FEW,
    MIDDLE,
    Keys,
    PerMember,
    Rows,
    Shown,
    key_positions,
    split_similarity,
)
from anchorlab.papers.anchor.mechanism.shift import rows_apart
from anchorlab.tasks import Batch
from anchorlab.training import Ensemble

_PATTERN = "blocks.1.attn.hook_pattern"


@dataclass(frozen=True)
class AnchorMaps:
    """How layer 1's map follows the anchor; the map of a position is the mean over sequences with the anchor there."""

    positions: Int[Tensor, "place"]  # of the anchor
    maps: Float[Tensor, "member place query key"]
    explained: Float[Tensor, "member"]  # share of the variance between sequences that lies between those positions
    own_apart: Float[Tensor, "member"]  # total variation between a sequence's rows and the map of its anchor's position
    other_apart: Float[Tensor, "member"]  # the same with the maps of all other positions, averaged


def anchor_maps(ensemble: Ensemble, batch: Batch) -> AnchorMaps:
    """Read the maps of layer 1's only head on test sequences."""
    pattern = look(ensemble, batch.inputs, record=[_PATTERN])[_PATTERN][:, :, 0]
    return read_anchor_maps(pattern, batch.latents["anchor_positions"][:, 0])


def read_anchor_maps(pattern: Float[Tensor, "member batch query key"], anchors: Int[Tensor, "batch"]) -> AnchorMaps:
    """Group one head's maps by the position of the anchor, which differs between sequences."""
    positions = torch.bincount(anchors).nonzero()[:, 0]
    held = (anchors.unsqueeze(-1) == positions).float()  # [batch place]
    counts = held.sum(dim=0)
    maps = torch.einsum("mbqk,bp->mpqk", pattern, held / counts)
    centre = pattern.mean(dim=1, keepdim=True)
    between = ((maps - centre).square().sum(dim=(2, 3)) * counts).sum(dim=1)
    whole = (pattern - centre).square().sum(dim=(1, 2, 3))
    apart = torch.stack([rows_apart(pattern, maps[:, [place]]).mean(dim=-1) for place in range(len(positions))], dim=-1)
    own = (apart * held).sum(dim=-1)
    return AnchorMaps(
        positions=positions,
        maps=maps,
        explained=(between / whole).where(whole > 0, torch.zeros(())),
        own_apart=own.mean(dim=-1),
        other_apart=((apart.sum(dim=-1) - own) / (len(positions) - 1)).mean(dim=-1),
    )


@dataclass(frozen=True)
class SecondAttention:
    """Layer 1's attention (appendix B.4); "others" are the positions without the key."""

    to_key: PerMember  # share of rows whose greatest score, before mask and softmax, is in the key's column
    queries: PerMember  # mean cosine between the others' queries
    keys: PerMember  # mean cosine between the others' keys
    opposite: PerMember  # mean cosine between a query and a key of the others
    same_side: PerMember  # share of sequences where the others' mean query and the key's query have a positive product
    longer: PerMember  # norm of the others' queries, divided by the norm of the key's, mean over sequences
    key_alike: PerMember  # mean cosine between the key's query and its key
    key_apart: PerMember  # absolute mean cosine between the key's row and the other rows, mean of queries and keys


def second_attention(ensemble: Ensemble, batch: Batch) -> SecondAttention:
    """Measure why layer 1 attends to the key, from its queries and keys before mask and softmax."""
    sites = [f"blocks.1.attn.hook_{name}" for name in "qk"]
    record = look(ensemble, batch.inputs, record=sites)
    queries, keys = (record[site][:, :, :, 0] for site in sites)
    return read_directions(queries, keys, key_positions(batch))


def read_directions(queries: Rows, keys: Rows, at: Keys) -> SecondAttention:
    """Measure the directions of one head's queries and keys; `at` holds the position of each sequence's key token."""
    each, length = torch.arange(len(at)), queries.shape[2]
    others = torch.arange(length) != at.unsqueeze(-1)
    key_query = queries[:, each, at]
    mean_query = (queries.sum(dim=2) - key_query) / (length - 1)
    norms = queries.norm(dim=-1)
    longer = ((norms * others).sum(dim=-1) / (length - 1)) / norms[:, each, at].clamp(min=1e-12)
    similarity = cosine_similarity(queries, keys)
    across = similarity[:, others.unsqueeze(-1) & others.unsqueeze(-2)]
    of_queries, of_keys = (split_similarity(cosine_similarity(rows, rows), at) for rows in (queries, keys))
    return SecondAttention(
        to_key=((queries @ keys.mT).argmax(dim=-1) == at.unsqueeze(-1)).float().mean(dim=(1, 2)),
        queries=of_queries[0],
        keys=of_keys[0],
        opposite=across.mean(dim=-1),
        same_side=((mean_query * key_query).sum(dim=-1) > 0).float().mean(dim=-1),
        longer=longer.mean(dim=-1),
        key_alike=similarity[:, each, at, at].mean(dim=-1),
        key_apart=(of_queries[1].abs() + of_keys[1].abs()) / 2,
    )


def anchor_figure(seed: int, found: AnchorMaps) -> MapFigure:
    """Draw the first seed's mean map for each position of the anchor."""
    maps = [
        Map(f"anchor at {position}", grid(found.maps[0, place]))
        for place, position in enumerate(found.positions.tolist())
    ]
    return MapFigure(
        title="Layer 1's attention by the anchor's position (section 5.1)",
        caption=f"Seed {seed}; mean maps over the test sequences with the anchor at each position, counted from 0.",
        maps=tuple(tuple(maps[start : start + 4]) for start in range(0, len(maps), 4)),
        value_range=(0.0, 1.0),
        seeds=str(seed),
    )


def score_maps(shown: Shown) -> MapFigure:
    """Draw layer 1's scores on one sequence, and its pattern."""
    sites = [f"blocks.1.attn.hook_{name}" for name in ("q", "k", "pattern")]
    record = look(shown.ensemble, shown.inputs, record=sites)
    queries, keys = (record[site][0, 0, :, 0] for site in sites[:2])
    scores = queries @ keys.T / queries.shape[-1] ** 0.5
    reach = float(scores.abs().max())
    return MapFigure(
        title="Layer 1's attention before and after mask and softmax (Fig 25)",
        caption=f"Seed {shown.seed}, one test sequence: scores divided by the greatest absolute one ({reach:.3g}), "
        "and the pattern.",
        maps=(
            (
                Map("scores", grid(scores / reach), shown.ticks, shown.ticks),
                Map("pattern", grid(record[sites[2]][0, 0, 0]), shown.ticks, shown.ticks),
            ),
        ),
        value_label="scaled score, attention",
        value_range=(-1.0, 1.0),
        signed=True,
        seeds=str(shown.seed),
    )


def directions(shown: Shown, batch: Batch) -> ScatterFigure:
    """Draw queries and keys of the first position and of the key's position."""
    sites = [f"blocks.1.attn.hook_{name}" for name in "qk"]
    record = look(shown.ensemble, batch.inputs[key_positions(batch) == MIDDLE][:FEW], record=sites)
    return directions_figure(shown.seed, *(record[site][0, :, :, 0] for site in sites))


def directions_figure(
    seed: int, queries: Float[Tensor, "batch position width"], keys: Float[Tensor, "batch position width"]
) -> ScatterFigure:
    """Return the figure of the main components of queries and keys, at the first position and at `MIDDLE`."""
    kinds = {
        "Q, first position": queries[:, 0],
        "Q, key": queries[:, MIDDLE],
        "K, first position": keys[:, 0],
        "K, key": keys[:, MIDDLE],
    }
    found = principal_components(torch.stack([*kinds.values()]).unsqueeze(0))
    points = found.coordinates[0]  # [kind batch component]
    which = torch.arange(len(kinds)).repeat_interleave(points.shape[1]).float()
    return ScatterFigure(
        title="Layer 1's queries and keys in the plane of their main components (Fig 26)",
        caption=f"Seed {seed}; queries and keys at the first position and the key's, for test sequences whose key is "
        f"at position {MIDDLE}, in one plane, which holds {float(found.explained.sum()):.0%} of the variance.",
        scatters=(Scatter("", numbers(points[..., 0].flatten()), numbers(points[..., 1].flatten()), numbers(which)),),
        x_label="first component",
        y_label="second component",
        value_label="row of",
        value_names=tuple(kinds),
        seeds=str(seed),
    )
