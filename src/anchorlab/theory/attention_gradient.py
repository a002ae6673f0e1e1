"""The first gradient of W_KQ, after one step of W_F and W_V: it moves attention away from the noise token.

Attention is still uniform. With f_k the share of token k in a sequence and G(j, k) = W_U(j)ᵀ W_V W_E(k),

    W_E(k)ᵀ (-grad_KQ) W_E(q) = E f_k sum_j (1{z_{T+1} = j} - p_j) (G(j, k) - sum_l f_l G(j, l))

All other projections are zero, since z_T = q. The sum over all k is zero: some tokens gain what others lose.
Source: truncated weights, appendix A.2.
"""

from dataclasses import dataclass
from math import exp

import numpy as np
from jaxtyping import Float
from numpy.random import Generator

from anchorlab.theory import one_step
from anchorlab.theory.one_layer import OneLayer
from anchorlab.theory.uniform_recall import NOISE_KIND, OTHER_KIND, TRIGGER, TRIGGER_KIND, Sequences, UniformRecall


def first_step(law: UniformRecall, learning_rate: float) -> OneLayer:
    """Return the weights after one step along the exact gradient of the expected loss (infinitely many sequences)."""
    outputs = law.tokens + 1
    feedforward = np.full(outputs, one_step.feedforward_moments(law, "other").mean)
    feedforward[law.noise_token] = one_step.feedforward_moments(law, "noise").mean

    def mean(output: one_step.Token, token: one_step.Token) -> float:
        return one_step.value_moments(law, (output, token)).mean

    value = np.full((outputs, outputs), mean("other", "other"))
    np.fill_diagonal(value, mean("other", "same"))
    value[:, TRIGGER] = mean("other", "trigger")
    value[:, law.noise_token] = mean("other", "noise")
    rows: tuple[tuple[int, one_step.Token], ...] = ((TRIGGER, "trigger"), (law.noise_token, "noise"))
    for row, name in rows:
        value[row] = mean(name, "other")
        value[row, TRIGGER], value[row, law.noise_token] = mean(name, "trigger"), mean(name, "noise")
    return OneLayer(-learning_rate * feedforward, -learning_rate * value, np.zeros(outputs))


def pull_by_output(law: UniformRecall, learning_rate: float) -> Float[np.ndarray, "output token"]:
    """Return W_E(k)ᵀ E [1/T sum_t W_U(j)ᵀ W_V x_t (x_t - mean of x)] for every output j and token k, after one step.

    These exact values are the projections of A in equation (3) for j at most N, and of B for j = N + 1.
    """
    value, moments = first_step(law, learning_rate).value, law.moments
    kinds = np.full(law.tokens + 1, OTHER_KIND)
    kinds[TRIGGER], kinds[law.noise_token] = TRIGGER_KIND, NOISE_KIND
    together = moments.product[np.ix_(kinds, kinds)]
    np.fill_diagonal(together, moments.square[kinds])
    return np.asarray(value * moments.mean[kinds] / law.length - value @ together / law.length**2)


def measured_first_step(law: UniformRecall, sample: Sequences, learning_rate: float) -> OneLayer:
    """Return the weights after one step along the gradient on drawn sequences, which need not follow the law."""
    feedforward, value = one_step.feedforward_gradient(sample, law.tokens), one_step.value_gradient(sample, law.tokens)
    return OneLayer(-learning_rate * feedforward, -learning_rate * value, np.zeros(law.tokens + 1))


def with_more_noise(law: UniformRecall, sample: Sequences, share: float, random: Generator) -> Sequences:
    """Return a sample whose tokens are noise with probability `share`, except triggers and the tokens after them."""
    tokens = sample.tokens.copy()
    free = tokens != TRIGGER
    free[1:] &= tokens[:-1] != TRIGGER
    tokens[free & (random.random(tokens.shape) < share)] = law.noise_token
    return Sequences(tokens, sample.outputs, sample.targets)


def key_query_gradient(law: UniformRecall, sample: Sequences, weights: OneLayer) -> Float[np.ndarray, "token"]:
    """Return W_E(k)ᵀ (-grad_KQ) W_E(q) for every token k, averaged over the target z_{T+1} given y."""
    return weights.descent(sample.counts(law.tokens) / law.length, sample.outputs, law.alpha).key_query


@dataclass(frozen=True)
class LeadingOrder:
    """W_E(k)ᵀ (-grad_KQ) W_E(q) for N, T >> 1, where k is the noise token, the trigger, or any other token."""

    noise: float
    trigger: float
    other: float


def leading_order(law: UniformRecall, learning_rate: float) -> LeadingOrder:
    """Return the closed forms, with eta the learning rate and p = exp(eta alpha) / (N + exp(eta alpha)):

    noise    -eta alpha^2 (1 - alpha) (alpha - p) / N^2
    trigger  eta alpha (alpha - p) (1/N + 1/T) (1/T + alpha (1 - alpha) / N^2)
    other    -(noise + trigger) / (N - 1)

    The paper gives the first form, and eta alpha^2 (1 - alpha) (alpha - p) / N^3 for all tokens but noise. This second
    form neglects z_T = q, the trigger that ends every sequence. The contribution of this trigger decays only as
    1 / (N T), and flips the sign for the other tokens if T is below about N / (alpha (1 - alpha)).
    """
    n, alpha = law.tokens, law.alpha
    probability = exp(learning_rate * alpha) / (n + exp(learning_rate * alpha))
    size = learning_rate * alpha * (alpha - probability)
    noise = -size * alpha * (1 - alpha) / n**2
    trigger = size * (1 / n + 1 / law.length) * (1 / law.length + alpha * (1 - alpha) / n**2)
    return LeadingOrder(noise, trigger, -(noise + trigger) / (n - 1))
