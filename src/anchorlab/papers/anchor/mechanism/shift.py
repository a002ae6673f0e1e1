"""Layer 0's attention: what its map depends on, and how many predictions survive with the exact shift in its place.

Source: anchor functions, appendix B.2, Figure 21.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.findings import Map, MapFigure, grid
from anchorlab.lens import Intervention, Operand, look, position_directions
from anchorlab.papers.anchor.mechanism.rows import PerMember, Shown
from anchorlab.tasks import Batch
from anchorlab.training import Ensemble


@dataclass(frozen=True)
class FirstAttention:
    """Layer 0's attention (appendix B.2)."""

    positions_apart: PerMember  # total variation between the rows of its map and those from positions alone
    tokens_apart: PerMember  # the same from tokens alone
    queries_to_keys: Float[Tensor, "member query key"]  # cosine of Q(Xpos) and K(Xpos)
    matched: PerMember  # share of positions i > 0 whose query is nearest in direction to the key of i - 1
    shifted_agrees: PerMember  # share of predictions unchanged with the exact shift in place of the map
    unnormalised_agrees: PerMember  # share of predictions unchanged without the layer norm after attention


def first_attention(ensemble: Ensemble, batch: Batch) -> FirstAttention:
    """Measure what layer 0's map depends on, and the predictions unchanged with the exact shift or without the norm."""
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
    """Return the total variation between two patterns' rows for each query but the first, which has one key."""
    return ((left - right).abs().sum(dim=-1) / 2)[..., 1:]


def shift_maps(shown: Shown, first: FirstAttention) -> MapFigure:
    """Draw layer 0's attention with the whole stream, with tokens alone and with positions alone.

    The last map is the cosine between the queries and keys of positions.
    """
    site = "blocks.0.attn.hook_pattern"
    parts = {"X(1)": [], "tokens alone": ["hook_pos_embed"], "positions alone": ["hook_embed"]}
    changes = {name: [Intervention(site=part, rule="zero") for part in zeroed] for name, zeroed in parts.items()}
    seen = look(shown.ensemble, shown.inputs, record=[site], candidates=changes)
    maps = [Map(name, grid(seen.candidate(name)[site][0, 0, 0]), shown.ticks, shown.ticks) for name in changes]
    return MapFigure(
        title="Layer 0's attention, what it comes from, and the directions behind it (Fig 21)",
        caption=f"Seed {shown.seed}, one test sequence: the map of the whole stream, of tokens alone and of positions "
        "alone; and the cosine between the queries and keys of positions, which is greatest where the query's position "
        "comes right after the key's.",
        maps=((*maps, Map("cosine of Q and K of positions", grid(first.queries_to_keys[0]))),),
        value_range=(-1.0, 1.0),
        value_label="attention, cosine",
        signed=True,
        seeds=str(shown.seed),
    )
