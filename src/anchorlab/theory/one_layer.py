"""The one-layer model of the truncated-weights paper in the basis of its embeddings, where a sequence is its counts.

With orthonormal embeddings and no positions, the logits depend on a sequence only by the share f_k of each token k:

    logits = W_F + G a,   a_k = f_k exp(s_k) / sum_l f_l exp(s_l)

where W_F is W_U(j)ᵀ W_F W_E(q), G is W_U(j)ᵀ W_V W_E(k) and s is W_E(k)ᵀ W_KQ W_E(q). The loss is the cross-entropy
averaged over the target z_{T+1} given y. All other projections of the matrices keep their values.
Source: truncated weights, section 4.1, equation (1) and assumption D.1.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from anchorlab.theory.uniform_recall import Sequences, UniformRecall

Shares = Float[np.ndarray, "sample token"]


@dataclass(frozen=True)
class OneLayer:
    """The trained matrices, or their gradients.

    Shapes
        feedforward: `[output]`, W_U(j)ᵀ W_F W_E(q)
        value: `[output token]`, W_U(j)ᵀ W_V W_E(k)
        key_query: `[token]`, W_E(k)ᵀ W_KQ W_E(q)
    """

    feedforward: Float[np.ndarray, "output"]
    value: Float[np.ndarray, "output token"]
    key_query: Float[np.ndarray, "token"]

    def attend(self, shares: Shares) -> tuple[Shares, Float[np.ndarray, "sample output"]]:
        """Return the attention that each token receives in total, and what attention adds to the logits."""
        attention = shares * np.exp(self.key_query - self.key_query.max())
        attention /= attention.sum(axis=1, keepdims=True)
        return attention, attention @ self.value.T

    def descent(self, shares: Shares, outputs: Int[np.ndarray, "sample"], alpha: float) -> "OneLayer":
        """Return the negative gradient of the mean loss; the target is noise with probability `alpha`, or else y."""
        attention, attended = self.attend(shares)
        # the error 1{z_{T+1} = j} - p_j, averaged over the target given y
        error = -probabilities(attended + self.feedforward)
        error[:, -1] += alpha
        error[np.arange(len(error)), outputs] += 1 - alpha
        # what more attention to k would gain, minus the gain of attention as it is: the derivative of a softmax
        pull = error @ self.value - (error * attended).sum(axis=1, keepdims=True)
        return OneLayer(error.mean(axis=0), error.T @ attention / len(error), (attention * pull).mean(axis=0))


def probabilities(logits: Float[np.ndarray, "sample output"]) -> Float[np.ndarray, "sample output"]:
    """Return the softmax of every row."""
    risen = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(risen / risen.sum(axis=1, keepdims=True))


def train(
    law: UniformRecall, sample: Sequences, rate: float, at: Collection[int], feed_forward: bool = True
) -> Mapping[int, OneLayer]:
    """Return the matrices after each number of steps in `at`, by full-batch gradient descent from zero on a sample.

    `rate` is the learning rate. Without `feed_forward`, W_F stays zero.
    """
    outputs, shares = law.tokens + 1, (sample.counts(law.tokens) / law.length).astype(np.float32)
    now = OneLayer(*(np.zeros(shape, np.float32) for shape in (outputs, (outputs, outputs), outputs)))
    found = {}
    for step in range(max(at) + 1):
        if step in at:
            found[step] = now
        move = now.descent(shares, sample.outputs, law.alpha)
        now = OneLayer(
            now.feedforward + rate * feed_forward * move.feedforward,
            now.value + rate * move.value,
            now.key_query + rate * move.key_query,
        )
    return found
