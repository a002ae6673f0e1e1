"""Gradient descent of many noisy associative memories at once.

A step is W -= rate / n sum_i sum_j (P(j | i) - p(j | i)) u_j e_iᵀ, so W = W_0 + Uᵀ A E with the e_i as the rows of E,
the u_j as the rows of U, and one small matrix A [output input]. Only A is updated, so hundreds of runs take seconds.

Source: truncated weights, section 5 and appendix C.1.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.random import Generator
from scipy.special import softmax


@dataclass(frozen=True)
class Memories:
    """The matrices of several runs and their embeddings, as in equation (5): f(i, j) = <u_j, W e_i>.

    Shapes
        weights: `[run row column]`, W
        inputs: `[run input column]`, the e_i
        outputs: `[run output row]`, the u_j; the last one is the noise
    """

    weights: Float[np.ndarray, "run row column"]
    inputs: Float[np.ndarray, "run input column"]
    outputs: Float[np.ndarray, "run output row"]

    @property
    def scores(self) -> Float[np.ndarray, "run output input"]:
        """f(i, j) for every output j and input i."""
        return np.asarray(self.outputs @ self.weights @ self.inputs.swapaxes(1, 2))

    def pure_label_loss(self, rank: int | None = None) -> Float[np.ndarray, "run"]:
        """Return the cross-entropy on noise-free labels, of W or of its best approximation of rank `rank`."""
        kept = self if rank is None else Memories(_cut(self.weights, rank), self.inputs, self.outputs)
        right = np.diagonal(softmax(kept.scores, axis=1), axis1=1, axis2=2)  # leaves out the noise, the last output
        return np.asarray(-np.log(right).mean(axis=1))

    def descend(self, alpha: float, rate: float, steps: int) -> "Memories":
        """Return the memories after `steps` steps of gradient descent on the exact loss with noise."""
        count = self.inputs.shape[1]
        law = np.vstack([(1 - alpha) * np.eye(count), np.full(count, alpha)])
        inputs, outputs = self.inputs @ self.inputs.swapaxes(1, 2), self.outputs @ self.outputs.swapaxes(1, 2)
        # W moves only within the span of u_j e_iᵀ: track its coefficients A, since the scores change by (U Uᵀ) A (E Eᵀ)
        start, moved = self.scores, np.zeros((len(self.weights), count + 1, count))
        for _ in range(steps):
            moved += rate / count * (law - softmax(start + outputs @ moved @ inputs, axis=1))
        return Memories(self.weights + self.outputs.swapaxes(1, 2) @ moved @ self.inputs, self.inputs, self.outputs)


def draw_memories(random: Generator, runs: int, inputs: int, width: int) -> Memories:
    """Draw initial memories: embeddings uniform on the sphere, W from N(0, 1 / width)."""
    weights = random.standard_normal((runs, width, width)) / np.sqrt(width)
    return Memories(weights, _on_sphere(random, runs, inputs, width), _on_sphere(random, runs, inputs + 1, width))


def _on_sphere(random: Generator, runs: int, count: int, width: int) -> Float[np.ndarray, "run count width"]:
    drawn = random.standard_normal((runs, count, width))
    return np.asarray(drawn / np.linalg.norm(drawn, axis=2, keepdims=True))


def _cut(weights: Float[np.ndarray, "run row column"], rank: int) -> Float[np.ndarray, "run row column"]:
    left, values, right = np.linalg.svd(weights)
    return np.asarray((left[:, :, :rank] * values[:, None, :rank]) @ right[:, :rank])
