"""Two layers of one uniform head without norm or feed-forward: a linear model, whose every edge is known exactly.

With a stream x of two coordinates, both heads average x over the two positions (no mask), times a in layer 0 and b in
layer 1. So with the mean change m of the embeddings and their change d at the scored position, the edges carry

    embed → logits d      embed → 0.0.v a (1 + b) m      embed → 1.0.v b m
    0.0 → logits a m      0.0 → 1.0.v a b m              1.0 → logits b (1 + a) m
"""

import torch

from anchorlab.axes import TaskShape
from anchorlab.models import DecoderSpec
from anchorlab.training.ensemble import Ensemble

GAINS = ((2.0, 3.0), (-0.5, 0.5))
"""a and b of both members."""

EMBEDDINGS = torch.tensor([[1.0, 0.0], [3.0, 1.0], [-2.0, 4.0], [0.5, -1.0]])
OUTPUT = torch.tensor([[1.0, -1.0, 0.0, 2.0], [0.0, 2.0, 1.0, -3.0]])
CLEAN, CORRUPTED = torch.tensor([[0, 1], [2, 3]]), torch.tensor([[2, 3], [1, 0]])
RIGHT, WRONG = torch.tensor([[0], [3]]), torch.tensor([[1], [2]])


def linear_members() -> Ensemble:
    spec = DecoderSpec(layers=2, heads=1, width=2, head_width=2, layer_norm=False, feed_forward=False, mask=False)
    template = spec.build(TaskShape("tokens", 2, 4, 4))
    weights = {name: torch.zeros(2, *value.shape) for name, value in template.named_parameters()}
    weights["embed.W_E"][:], weights["unembed.W_U"][:] = EMBEDDINGS, OUTPUT
    for member, gains in enumerate(GAINS):
        for layer, gain in enumerate(gains):
            weights[f"blocks.{layer}.attn.W_V"][member] = gain * torch.eye(2)
            weights[f"blocks.{layer}.attn.W_O"][member] = torch.eye(2)
    return Ensemble(template, weights, tuple(weights), spec)


def effects() -> list[dict[str, float]]:
    """The exact effect of corrupting each edge of each member on the mean logit difference; other edges have none."""
    found = []
    for a, b in GAINS:
        total: dict[str, float] = {}
        for row in range(2):
            read = OUTPUT[:, RIGHT[row, 0]] - OUTPUT[:, WRONG[row, 0]]
            change = EMBEDDINGS[CORRUPTED[row]] - EMBEDDINGS[CLEAN[row]]
            d, m = float(change[1] @ read) / 2, float(change.mean(dim=0) @ read) / 2
            carried = {
                "embed → logits": d, "embed → 0.0.v": a * (1 + b) * m, "embed → 1.0.v": b * m, "0.0 → logits": a * m,
                "0.0 → 1.0.v": a * b * m, "1.0 → logits": b * (1 + a) * m,
            }  # fmt: skip
            total = {edge: total.get(edge, 0.0) + value for edge, value in carried.items()}
        found.append(total)
    return found
