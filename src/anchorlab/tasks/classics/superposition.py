"""Superposition: reconstruct sparse features from fewer neurons."""

from typing import ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from anchorlab.axes import TaskShape
from anchorlab.rng import generator
from anchorlab.tasks.batch import Answer, Batch, TraceStep
from anchorlab.tasks.metrics import LossKind
from anchorlab.tasks.registry import register_task
from anchorlab.tasks.task import Task


@register_task("classics/superposition")
class Superposition(Task):
    """The input vector of sparse features, reconstructed by a model with fewer neurons than features.

    features: the number n of features
    density: the probability 1 - S that a feature is not zero; its value is then uniform between 0 and 1
    importance: the ratio r of the importances I_i = r^i of feature i, counted from 0, which weight the squared errors
        in the loss; the source uses 0.7 with 20 features, and 1 in its uniform case

    A sequence is one vector, and the answer is the same vector. Both splits have the same distribution: `separated` is
    false. The model `superposition` learns it. The metric `error` is the mean squared error without importances.
    Source: Elhage et al., Toy models of superposition, 2022.
    """

    family: Literal["superposition"] = "superposition"
    features: int = Field(20, ge=1, le=4096)
    density: float = Field(0.1, gt=0, le=1)
    importance: float = Field(1.0, gt=0, le=1)

    later: ClassVar[frozenset[str]] = frozenset({"importance"})
    separated: ClassVar[bool] = False
    loss: ClassVar[LossKind] = "mean_squared_error"

    @property
    def shape(self) -> TaskShape:
        """One vector in, the same out."""
        return TaskShape("vectors", 1, self.features, self.features)

    def sample(self, split: str, n: int, seed: int) -> Batch:
        """Draw `n` vectors."""
        self.check_draw(split, n, seed)
        random = generator(seed, "sequences", split)
        values = random.random((n, 1, self.features), dtype=np.float32)
        values *= random.random(values.shape, dtype=np.float32) < self.density
        inputs = torch.from_numpy(values)
        return Batch(inputs, inputs, inputs, torch.tensor([0]), split)

    def oracle(self, inputs: Float[Tensor, "batch position feature"]) -> Answer:
        """Return the vector itself; the trace names the largest feature."""
        known = (self.split_of(inputs) == 0).unsqueeze(1)
        step = TraceStep("vector", torch.where(known[:, 0], 0, -1), inputs[:, 0])
        return Answer(inputs[:, :1], known, (step,))

    def losses(
        self, outputs: Float[Tensor, "batch scored output"], targets: Float[Tensor, "batch scored output"]
    ) -> Float[Tensor, "batch scored"]:
        """Return the squared error, each feature weighted by its importance, averaged over the features."""
        if self.importance == 1:
            return super().losses(outputs, targets)
        weights = self.importance ** torch.arange(self.features, device=outputs.device, dtype=outputs.dtype)
        return ((outputs - targets).square() * weights).mean(dim=-1)

    def split_of(self, inputs: Float[Tensor, "batch position feature"]) -> Int[Tensor, "batch"]:
        """Return 0 for one vector of values between 0 and 1, -1 for anything else."""
        return ((inputs >= 0) & (inputs <= 1)).all(dim=2)[:, 0].long() - 1
