"""Layer 1's attention by the anchor's position, on the identity anchor function.

Source: anchor functions, section 5.1.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorlab.lens import look
from anchorlab.tasks import Batch
from anchorlab.training import Ensemble

SITE = "blocks.1.attn.hook_pattern"


@dataclass(frozen=True)
class AnchorMaps:
    """How layer 1's map follows the anchor's position; a position's map is the mean over sequences with it there."""

    positions: Int[Tensor, "place"]  # of the anchor
    maps: Float[Tensor, "member place query key"]
    explained: Float[Tensor, "member"]  # share of the variance between sequences that lies between those positions
    own_apart: Float[Tensor, "member"]  # total variation between a sequence's rows and its position's map
    other_apart: Float[Tensor, "member"]  # the same for the maps of all other positions, their mean


def anchor_maps(ensemble: Ensemble, batch: Batch) -> AnchorMaps:
    """Read layer 1's one head on test sequences."""
    pattern = look(ensemble, batch.inputs, record=[SITE])[SITE][:, :, 0]
    return read_anchor_maps(pattern, batch.latents["anchor_positions"][:, 0])


def read_anchor_maps(pattern: Float[Tensor, "member batch query key"], anchors: Int[Tensor, "batch"]) -> AnchorMaps:
    """Read one head's maps by the position of each sequence's anchor, of which there are several."""
    positions = torch.bincount(anchors).nonzero()[:, 0]
    held = (anchors.unsqueeze(-1) == positions).float()  # [batch place]
    counts = held.sum(dim=0)
    maps = torch.einsum("mbqk,bp->mpqk", pattern, held / counts)
    centre = pattern.mean(dim=1, keepdim=True)
    between = ((maps - centre).square().sum(dim=(2, 3)) * counts).sum(dim=1)
    whole = (pattern - centre).square().sum(dim=(1, 2, 3))
    apart = torch.stack([_apart(pattern, maps[:, [place]]) for place in range(len(positions))], dim=-1)
    own = (apart * held).sum(dim=-1)
    return AnchorMaps(
        positions=positions,
        maps=maps,
        explained=(between / whole).where(whole > 0, torch.zeros(())),
        own_apart=own.mean(dim=-1),
        other_apart=((apart.sum(dim=-1) - own) / (len(positions) - 1)).mean(dim=-1),
    )


def _apart(
    left: Float[Tensor, "member batch query key"], right: Float[Tensor, "member one query key"]
) -> Float[Tensor, "member batch"]:
    """Total variation between rows, mean over rows but for the first, which can only attend to itself."""
    return ((left - right).abs().sum(dim=-1) / 2)[..., 1:].mean(dim=-1)
