"""Shared by all parts of the mechanism study: the key's positions, similarities between rows, and the sequence shown.

Source: anchor functions, section 5.1 and appendix B.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorlab.studies.kit import example
from anchorlab.tasks import Batch
from anchorlab.training import Ensemble, TrainedRun

MIDDLE = 5  # the key's position in the paper's figures, counted from 0
LOOKED_AT = 500  # test sequences
FEW = 40  # sequences whose rows are drawn as points

Rows = Float[Tensor, "member batch position width"]
PerMember = Float[Tensor, "member"]
Keys = Int[Tensor, "batch"]


def key_positions(batch: Batch) -> Keys:
    """Return the position of each sequence's key."""
    return batch.latents["key_positions"][:, 0]


def split_similarity(similarity: Float[Tensor, "member batch query key"], keys: Keys) -> tuple[PerMember, PerMember]:
    """Return the mean similarity among positions without the key, and between these and the key's position."""
    length = similarity.shape[-1]
    others = torch.arange(length) != keys.unsqueeze(-1)
    pairs = others.unsqueeze(-1) & others.unsqueeze(-2) & ~torch.eye(length, dtype=torch.bool)
    with_key = similarity[:, torch.arange(len(keys)), keys]
    return similarity[:, pairs].mean(dim=-1), with_key[:, others].mean(dim=-1)


@dataclass(frozen=True)
class Shown:
    """What most figures show: the first seed, on a sequence with its key at the same position as in the paper."""

    seed: int
    ensemble: Ensemble  # of this seed alone
    inputs: Int[Tensor, "1 position"]
    ticks: tuple[str, ...]  # the tokens as text


def show(run: TrainedRun, ensemble: Ensemble, batch: Batch) -> Shown:
    """Return what figures show: the first seed, and a test sequence with its key at `MIDDLE`."""
    place, ticks = example(run.experiment.task, batch, key_positions(batch) == MIDDLE)
    return Shown(run.experiment.members.seeds[0], ensemble.select([0]), batch.inputs[[place]], ticks)
