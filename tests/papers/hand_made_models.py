"""Models made by hand on the identity task: what every head attends to is known."""

import torch

from anchorlab.models import DecoderSpec
from anchorlab.tasks import task
from anchorlab.training.ensemble import Ensemble

LENGTH, ANCHOR = 9, 3
IS_ANCHOR, AFTER_ANCHOR, WIDTH = 9, 10, 11  # coordinates of the stream, after one for each position
SHARP = 60.0 * WIDTH**0.5  # exp(-60) is nothing


def blank(spec: DecoderSpec, name: str, members: int = 1) -> Ensemble:
    """Members of a model for a task whose weights are all zero, to be written into."""
    template = spec.build(task(name).shape)
    weights = {one: torch.zeros(members, *value.shape) for one, value in template.named_parameters()}
    return Ensemble(template, weights, tuple(weights))


def two_layers(*members: tuple[int, int]) -> Ensemble:
    """Two layers of one head; a member is how far layer 0 shifts, and how far after the anchor layer 1 reads: 0 or 1.

    Before the position that it reads, layer 1 is uniform.
    """
    spec = DecoderSpec(layers=2, heads=1, width=WIDTH, head_width=WIDTH, layer_norm=False, feed_forward=False)
    ensemble = blank(spec, "anchor/identity", len(members))
    weights = ensemble.weights
    weights["pos_embed.W_pos"][:, :, :LENGTH] = torch.eye(LENGTH)
    weights["embed.W_E"][:, ANCHOR, IS_ANCHOR] = 1
    weights["blocks.0.attn.W_Q"][:, :LENGTH, :LENGTH] = torch.eye(LENGTH) * SHARP
    weights["blocks.0.attn.W_V"][:, IS_ANCHOR, 0] = 1
    weights["blocks.0.attn.W_O"][:, 0, AFTER_ANCHOR] = 1
    weights["blocks.1.attn.W_Q"][:, :LENGTH, 0] = SHARP
    for member, (shift, source) in enumerate(members):
        for position in range(LENGTH - shift):
            weights["blocks.0.attn.W_K"][member, position, position + shift] = 1
        if source == 0:
            weights["blocks.1.attn.W_K"][member, IS_ANCHOR, 0] = 1
        else:  # position 0 attends to itself alone, and so brings an anchor there to itself
            weights["blocks.1.attn.W_K"][member, [AFTER_ANCHOR, IS_ANCHOR], 0] = torch.tensor([1.0, -1.0])
    return ensemble
