"""Effects of perturbing trained members: noise on the embeddings, and small moves of all weights.

Each perturbation is relative to the size of what it changes, and the same for all members, so that members can be
compared whatever the scale of their weights.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.lens import Intervention, Operand, look
from anchorlab.models.block import STREAM
from anchorlab.rng import torch_generator
from anchorlab.tasks import Batch
from anchorlab.tasks.metrics import loss_per_position
from anchorlab.training import Ensemble

SITE = "hook_embed"
DIRECTIONS = 4
"""The number of random directions in which weights are moved, each both ways."""


def kept_under_noise(ensemble: Ensemble, batch: Batch, strengths: Sequence[float]) -> Float[Tensor, "strength member"]:
    """Return the share of right answers that stay right under Gaussian noise on the token embeddings.

    Args:
        ensemble: models with the site `hook_embed`
        batch: sequences with tokens as answers
        strengths: standard deviations of the noise, in units of the embeddings' root mean square

    Returns: NaN for a member without a right answer.
    """
    record = look(ensemble, batch.inputs, [SITE], positions=batch.positions)
    right, embedded = _right(record["output"], batch), record[SITE]
    size = embedded.square().mean(dim=(1, 2, 3), keepdim=True).sqrt()
    noise = size * torch.randn(embedded.shape[1:], generator=torch_generator(0, "noise"))
    kept = []
    for strength in strengths:
        operand = Operand(values=strength * noise, axes=("member", *STREAM))
        change = Intervention(site=SITE, rule="add", operand=operand)
        still = _right(look(ensemble, batch.inputs, interventions=[change], positions=batch.positions)["output"], batch)
        kept.append((right & still).sum(dim=(1, 2)) / right.sum(dim=(1, 2)))
    return torch.stack(kept)


def _right(outputs: Float[Tensor, "member batch scored output"], batch: Batch) -> Tensor:
    return outputs.argmax(dim=-1) == batch.answers


def rise_in_loss(ensemble: Ensemble, batch: Batch, sizes: Sequence[float]) -> Float[Tensor, "size member"]:
    """Return how much the loss at the answers rises when all weights move at random, a measure of sharpness.

    Each weight tensor moves by `size` times its norm along a random direction and then the opposite one; the rise is
    the mean over both and over `DIRECTIONS` directions. Averaging both cancels the slope and leaves the curvature.
    """
    before = _loss(ensemble, batch)
    rises = [
        torch.stack([_loss(moved(ensemble, way * size, draw), batch) for draw in range(DIRECTIONS) for way in (1, -1)])
        for size in sizes
    ]
    return torch.stack([one.mean(dim=0) - before for one in rises])


def moved(ensemble: Ensemble, size: float, draw: int) -> Ensemble:
    """Return members with each weight tensor moved by `size` times its norm along a random direction.

    All members move along the same directions, which `draw` selects.
    """
    weights = dict(ensemble.weights)
    for name in ensemble.trainable:
        value = weights[name]
        direction = torch.randn(value.shape[1:], generator=torch_generator(draw, "direction", name))
        norm = value.flatten(1).norm(dim=1).reshape(-1, *[1] * (value.ndim - 1))
        weights[name] = value + size * norm * (direction / direction.norm())
    return ensemble.with_weights(weights)


def _loss(ensemble: Ensemble, batch: Batch) -> Float[Tensor, "member"]:
    outputs = look(ensemble, batch.inputs, positions=batch.positions)["output"]
    losses = [loss_per_position("cross_entropy", one, batch.targets).mean() for one in outputs]
    return torch.stack(losses)
