"""Theorem 1: the margins of the noise logit after one full-batch gradient step from zero, measured and predicted.

At learning rate 1 the logits of the feed-forward layer are the shares of each target among the m sequences. The logits
of attention are the same shares, with each sequence weighted by its overlap s = sum_k r_k n_k / T with the test
sequence; r_k are the shares of tokens in the test sequence. A constant common to all logits cancels in a margin.
Source: truncated weights, Theorem 1 and its proof in appendix D.
"""

from dataclasses import dataclass
from math import log, sqrt

import numpy as np
from jaxtyping import Float, Int
from numpy.random import Generator

from anchorlab.theory.uniform_recall import NOISE_KIND, OTHER_KIND, TRIGGER, TRIGGER_KIND, Sequences, UniformRecall


@dataclass(frozen=True)
class StepMargins:
    """The noise logit minus the largest other logit, at learning rate 1.

    Shapes
        feedforward: `[draw]`
        attention: `[draw test]`, for each test sequence
        noise_logit: `[draw test]`, attention's noise logit itself, up to the constant that cancels in the margin
    """

    feedforward: Float[np.ndarray, "draw"]
    attention: Float[np.ndarray, "draw test"]
    noise_logit: Float[np.ndarray, "draw test"]


def draw_margins(
    law: UniformRecall, samples: int, draws: int, shares: Float[np.ndarray, "test token"], random: Generator
) -> StepMargins:
    """Return the margins after one step on each of `draws` training sets of `samples` (m) sequences.

    Args:
        law: the distribution of sequences
        samples: the number of training sequences in a set
        draws: the number of training sets, drawn independently
        shares: the shares r_k of the N + 1 tokens in each test sequence
        random: the generator that draws the training sets
    """
    outputs = law.tokens + 1
    weighed = np.zeros((1 + len(shares), draws * outputs))  # rows: weights 1 (feed-forward), then overlaps by test
    done = 0
    for block in law.blocks(random, draws * samples):
        # a cell per training set and output: the logit of an output sums the weights of the sequences with this target
        cells = np.arange(done, done + block.targets.size) // samples * outputs + block.targets
        # only the training sets that this block touches; a set may continue in the next block
        first, end = int(cells[0]) // outputs * outputs, (int(cells[-1]) // outputs + 1) * outputs
        weights = np.concatenate([np.ones((1, cells.size)), overlaps(block, shares)])
        for row, weight in zip(weighed, weights, strict=True):
            row[first:end] += np.bincount(cells - first, weight, end - first)
        done += block.targets.size
    logits = weighed.reshape(-1, draws, outputs) / samples
    margins = logits[:, :, -1] - logits[:, :, :-1].max(axis=2)
    return StepMargins(margins[0], margins[1:].T, logits[1:, :, -1].T)


def overlaps(sample: Sequences, shares: Float[np.ndarray, "test token"]) -> Float[np.ndarray, "test sample"]:
    """Return the overlap s = sum_k r_k n_k / T of each sequence with each test sequence."""
    total = np.zeros((len(shares), sample.targets.size))
    for tokens in sample.tokens:  # by position, to fit in the processor's cache
        total += np.take(shares, tokens, axis=1)
    return total / len(sample.tokens)


def shares_of(tokens: Int[np.ndarray, "position test"], vocabulary: int) -> Float[np.ndarray, "test token"]:
    """Return the shares of the tokens in each test sequence; `vocabulary` is N + 1."""
    return np.stack([np.bincount(column, minlength=vocabulary) / column.size for column in tokens.T])


def repeated_token(law: UniformRecall) -> Float[np.ndarray, "test token"]:
    """Return the shares of the test sequence k, k, .., k, q, the hardest: it resembles drawn sequences least."""
    shares = np.zeros((1, law.tokens + 1))
    shares[0, TRIGGER], shares[0, 1] = 1 / law.length, 1 - 1 / law.length
    return shares


def alpha_hat(law: UniformRecall, shares: Float[np.ndarray, "test token"]) -> Float[np.ndarray, "test"]:
    """Return Theorem 1's alpha^2 r + alpha (1 - r), where r is the share of noise in each test sequence."""
    noise = shares[:, law.noise_token]
    return law.alpha**2 * noise + law.alpha * (1 - noise)


@dataclass(frozen=True)
class Spread:
    """The exact mean and standard deviation of a noise logit over draws of training sequences."""

    mean: float
    deviation: float


def feedforward_spread(law: UniformRecall, samples: int) -> Spread:
    """Return the spread of the share of noise among m targets: mean alpha, deviation sqrt(alpha (1 - alpha) / m)."""
    return Spread(law.alpha, sqrt(law.alpha * (1 - law.alpha) / samples))


def attention_spread(law: UniformRecall, samples: int, shares: Float[np.ndarray, "token"]) -> Spread:
    """Return the spread of the mean of 1{z_{T+1} = N+1} s over m sequences, with s the overlap with one test sequence.

    The mean is alpha E s, the standard deviation sqrt((alpha E s^2 - (alpha E s)^2) / m).
    """
    found = law.moments
    own = np.zeros(4)
    own[NOISE_KIND], own[TRIGGER_KIND] = shares[law.noise_token], shares[TRIGGER]
    others = np.delete(shares, [TRIGGER, law.noise_token])
    own[OTHER_KIND] = others.sum()
    kinds = [NOISE_KIND, TRIGGER_KIND, OTHER_KIND]
    product = found.product[np.ix_(kinds, kinds)].copy()
    # E s² = Σ r_k r_l E n_k n_l / T². Noise and trigger are one token each, so their own products are squares
    product[[0, 1], [0, 1]] = found.square[[NOISE_KIND, TRIGGER_KIND]]
    mean = own[kinds] @ found.mean[kinds] / law.length
    square = own[kinds] @ product @ own[kinds]
    # the kind `other` covers many tokens: the sum above treats k = l as two different tokens; correct these terms
    square += (others**2).sum() * (found.square[OTHER_KIND] - found.product[OTHER_KIND, OTHER_KIND])
    square /= law.length**2
    variance = law.alpha * square - (law.alpha * mean) ** 2
    return Spread(float(law.alpha * mean), sqrt(float(variance) / samples))


def feedforward_bound(law: UniformRecall, samples: int, delta: float) -> float:
    """Return Theorem 1's sqrt(ln(2 (N + 1) / delta) / m), without its constant."""
    return sqrt(log(2 * (law.tokens + 1) / delta) / samples)


def attention_bound(law: UniformRecall, samples: int, delta: float) -> float:
    """Return sqrt((1 / (TN) + 1 / N^2) ln(2 (N + 1) / delta) / m) + ln(2 (N + 1) / delta) / m, without constants.

    This is the bound of Theorem 1 on attention.
    """
    logarithm = log(2 * (law.tokens + 1) / delta)
    size = 1 / (law.length * law.tokens) + 1 / law.tokens**2
    return sqrt(size * logarithm / samples) + logarithm / samples
