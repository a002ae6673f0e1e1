"""The gradient of the key-query matrix after one step, measured on random sequences."""

from dataclasses import dataclass
from math import sqrt

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.rng import generator
from anchorlab.theory.attention_gradient import (
    first_step,
    key_query_gradient,
    leading_order,
    measured_first_step,
    with_more_noise,
)
from anchorlab.theory.uniform_recall import UniformRecall

ALPHA, LEARNING_RATE = 0.5, 1.0
POWERS = {"W_F": 0, "W_V": -1, "W_KQ": -2, "trigger": -3, "other": -3}
"""The paper's powers in N: how far each matrix moves, and the parts of W_KQ's gradient."""


@dataclass(frozen=True)
class Gradient:
    """Projections of -grad_KQ on W_E(k) W_E(q)ᵀ for each kind of token k: noise, trigger and any other."""

    law: UniformRecall
    noise: Float[np.ndarray, "batch"]
    trigger: Float[np.ndarray, "batch"]
    other: Float[np.ndarray, "batch"]

    def of(self, token: str) -> Float[np.ndarray, "batch"]:
        """Return the projections of a kind of token."""
        return {"noise": self.noise, "trigger": self.trigger, "other": self.other}[token]

    def drawn(self, token: str) -> Float[Tensor, "batch"]:
        """Return the projections of a kind of token as a tensor."""
        return torch.from_numpy(self.of(token))

    def mean(self, token: str) -> float:
        """Return the mean projection over batches."""
        return float(self.of(token).mean())

    def error(self, token: str) -> float:
        """Return the standard error of the mean."""
        values = self.of(token)
        return float(values.std(ddof=1) / sqrt(values.size))

    def derived(self, token: str) -> float:
        """Return the leading order for N, T ≫ 1."""
        return float(getattr(leading_order(self.law, LEARNING_RATE), token))


def measure(law: UniformRecall, batches: int, batch: int) -> Gradient:
    """Return the gradient after the exact first step, over independent batches of sequences."""
    weights = first_step(law, LEARNING_RATE)
    found = np.zeros((batches, law.tokens + 1))
    for index in range(batches):
        random = generator(0, "attention gradient", law.tokens, law.length, index)
        for block in law.blocks(random, batch):
            found[index] += key_query_gradient(law, block, weights) * block.targets.size / batch
    return Gradient(law, found[:, -1], found[:, 0], found[:, 1:-1].mean(axis=1))


def measure_with_noise(law: UniformRecall, share: float, samples: int) -> float:
    """Return the noise's projection when it also replaces other tokens, with probability `share` / N."""
    random = generator(0, "more noise", law.tokens, law.length, round(100 * share))
    found, first = 0.0, None
    for block in law.blocks(random, samples):
        more = with_more_noise(law, block, share / law.tokens, random)
        first = first or measured_first_step(law, more, LEARNING_RATE)
        found += key_query_gradient(law, more, first)[law.noise_token] * more.targets.size / samples
    return float(found)
