"""Effects of perturbing trained members: noise on the embeddings, and small moves of all weights.

Each perturbation is relative to the size of what it changes, and the same for all members, so that members can be
compared whatever the scale of their weights.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.lens import Intervention, Operand, look
from anchorlab.models.model import predict
from anchorlab.models.sites import STREAM
from anchorlab.rng import torch_generator
from anchorlab.tasks import Batch
from anchorlab.tasks.metrics import loss_per_position
from anchorlab.training import Ensemble, Experiment, TrainedRun
from anchorlab.training.feed import FixedSampleFeed, make_feed

SITE = "hook_embed"
DIRECTIONS = 4  # random directions in which weights are moved, each both ways
MOVES = (0.05, 0.1, 0.2, 0.4)  # of all weights, in units of the norm of each tensor
MOVE = 0.2  # the move at which the rise of the loss is compared


def on_own_sequences(
    measure: Callable[[Ensemble, Batch, Sequence[float]], Float[Tensor, "value member"]],
    run: TrainedRun,
    values: Sequence[float],
) -> Float[Tensor, "value member"]:
    """Return a measure under perturbation, of each member on its own training sequences."""
    ensemble, batches = run.ensemble(), own_sequences(run.experiment)
    found = [measure(ensemble.select([member]), batch, values) for member, batch in enumerate(batches)]
    return torch.cat(found, dim=1)


def own_sequences(experiment: Experiment) -> list[Batch]:
    """Return the first training sequences of each member, on which its training accuracy is measured."""
    feed = make_feed(experiment.task, experiment.recipe, experiment.members, torch.device("cpu"), torch.float32)
    assert isinstance(feed, FixedSampleFeed)
    return feed.first


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
    drawn = [directions(ensemble, draw) for draw in range(DIRECTIONS)]
    rises = [
        torch.stack([_loss(moved(ensemble, way * size, along), batch) for along in drawn for way in (1, -1)])
        for size in sizes
    ]
    return torch.stack([one.mean(dim=0) - before for one in rises])


def directions(ensemble: Ensemble, draw: int) -> dict[str, Float[Tensor, "..."]]:
    """Return a random direction of norm 1 for each weight tensor, the same for all members; `draw` selects it."""
    found = {}
    for name in ensemble.trainable:
        drawn = torch.randn(ensemble.weights[name].shape[1:], generator=torch_generator(draw, "direction", name))
        found[name] = drawn / drawn.norm()
    return found


def moved(ensemble: Ensemble, size: float, along: Mapping[str, Float[Tensor, "..."]]) -> Ensemble:
    """Return members with each weight tensor moved by `size` times its norm along the direction of the same name."""
    weights = dict(ensemble.weights)
    for name, direction in along.items():
        value = weights[name]
        norm = value.flatten(1).norm(dim=1).reshape(-1, *[1] * (value.ndim - 1))
        weights[name] = value + size * norm * direction
    return ensemble.with_weights(weights)


@torch.no_grad()
def _loss(ensemble: Ensemble, batch: Batch) -> Float[Tensor, "member"]:
    outputs = [
        predict(ensemble.template, batch.inputs, batch.positions, ensemble.member_weights(member))
        for member in range(ensemble.size)
    ]
    return torch.stack([loss_per_position("cross_entropy", one, batch.targets).mean() for one in outputs])
