"""Noisy in-context recall with uniform tokens: bulk sampling, and exact moments of token counts.

The tokens are 0..N-1, where 0 is the trigger, and the noise token N.
Source: truncated weights, section 4 (the law) and 4.1 (uniform pi_u and pi_b).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
from jaxtyping import Float, Int
from numpy.random import Generator

from anchorlab.errors import SpecError

TRIGGER = 0
"""The trigger token q; the choice does not matter, since all tokens are equally likely."""

NOISE_KIND, TRIGGER_KIND, OUTPUT_KIND, OTHER_KIND = range(4)
"""The kinds of tokens with different distributions: noise (the paper's N + 1), trigger q, output y, any other."""

_BLOCK_TOKENS = 1 << 22


@dataclass(frozen=True, eq=False)
class Sequences:
    """Sequences of uniform recall, one per column, with their outputs and targets.

    Shapes
        tokens: `[position sample]`, z_1 .. z_T
        outputs: `[sample]`, the output y of each sequence
        targets: `[sample]`, z_{T+1}: y or the noise token
    """

    tokens: Int[np.ndarray, "position sample"]
    outputs: Int[np.ndarray, "sample"]
    targets: Int[np.ndarray, "sample"]

    def counts(self, tokens: int) -> Float[np.ndarray, "sample token"]:
        """Return how often each token occurs in each sequence; `tokens` is N, and the noise token comes last."""
        samples = self.targets.size
        # one bin per sequence and token: shift the tokens of each sequence to its own range, and count all at once
        cells = self.tokens + np.arange(samples, dtype=np.int64) * (tokens + 1)
        counted = np.bincount(cells.reshape(-1), minlength=samples * (tokens + 1))
        return counted.reshape(samples, tokens + 1).astype(np.float64)


@dataclass(frozen=True)
class CountMoments:
    """Moments of the counts n_k of tokens k in z_1 .. z_T, by the kind of token.

    Shapes
        mean: `[kind]`, E n_k
        square: `[kind]`, E n_k^2
        product: `[kind kind]`, E n_k n_l for two different tokens
    """

    mean: Float[np.ndarray, "kind"]
    square: Float[np.ndarray, "kind"]
    product: Float[np.ndarray, "kind kind"]


@dataclass(frozen=True)
class UniformRecall:
    """The distribution of noisy recall with uniform tokens, which is the task `recall/noisy` with `source = "uniform"`.

    Each sequence draws an output y uniformly from [N]. Its tokens are uniform on [N], except that the trigger is
    followed by y, or with probability alpha by the noise token, and that the last token z_T is the trigger.

    Fields
        tokens: N, the number of tokens besides noise
        length: T
        alpha: the probability of noise after a trigger

    Errors: `SpecError` for fewer than 4 tokens or 3 positions, and for alpha outside 0 < alpha < 1.
    """

    tokens: int
    length: int
    alpha: float

    def __post_init__(self) -> None:
        if self.tokens < 4:
            raise SpecError("tokens", f"{self.tokens} tokens are too few for all kinds", "give at least 4")
        if self.length < 3:
            raise SpecError("length", f"{self.length} positions are too few", "give at least 3")
        if not 0 < self.alpha < 1:
            raise SpecError("alpha", f"{self.alpha} is not a noise level", "choose it between 0 and 1")

    @property
    def noise_token(self) -> int:
        """The noise token's id, N."""
        return self.tokens

    def draw(self, random: Generator, samples: int) -> Sequences:
        """Return `samples` independent sequences."""
        kind = np.int16 if self.tokens < 2**15 else np.int32
        outputs = random.integers(self.tokens, size=samples)
        tokens = random.integers(self.tokens, size=(self.length, samples), dtype=kind)
        for position in range(1, self.length - 1):
            at = np.flatnonzero(tokens[position - 1] == TRIGGER)
            tokens[position, at] = self._after_trigger(random, outputs[at])
        tokens[-1] = TRIGGER
        return Sequences(tokens, outputs, self._after_trigger(random, outputs))

    def blocks(self, random: Generator, samples: int) -> Iterator[Sequences]:
        """Yield `samples` sequences in blocks that fit in memory."""
        block = max(1, _BLOCK_TOKENS // self.length)
        for start in range(0, samples, block):
            yield self.draw(random, min(block, samples - start))

    def _after_trigger(self, random: Generator, outputs: Int[np.ndarray, "sample"]) -> Int[np.ndarray, "sample"]:
        return np.where(random.random(outputs.size) < self.alpha, self.noise_token, outputs)

    def given(self, output_is_trigger: bool) -> CountMoments:
        """Return exact moments given that y is the trigger (`OUTPUT_KIND` equals `TRIGGER_KIND`) or another token."""
        return _moments_given(self, output_is_trigger)

    @cached_property
    def moments(self) -> CountMoments:
        """Exact moments over all y; NaN for `OUTPUT_KIND`, which has no meaning here."""
        # y is the trigger with probability 1 / N, and else one of N - 1 tokens. A fixed other token is this y in one of
        # these cases (`OUTPUT_KIND`), and not in N - 2 (`OTHER_KIND`)
        looped, plain, others = self.given(True), self.given(False), self.tokens - 2
        moments = [(getattr(looped, of).T, getattr(plain, of).T) for of in ("mean", "square", "product")]
        mean, square, product = ((one + (others + 1) * other) / self.tokens for one, other in moments)
        for found, (one, other) in zip((mean, square, product), moments, strict=True):
            found[OTHER_KIND] = (one[OTHER_KIND] + other[OUTPUT_KIND] + others * other[OTHER_KIND]) / self.tokens
        product[:, OTHER_KIND] = product[OTHER_KIND]
        product[OTHER_KIND, OTHER_KIND] = (
            looped.product[OTHER_KIND, OTHER_KIND]
            + 2 * plain.product[OUTPUT_KIND, OTHER_KIND]
            + (others - 1) * plain.product[OTHER_KIND, OTHER_KIND]
        ) / self.tokens
        for found in (mean, square, product, product.T):
            found[OUTPUT_KIND] = np.nan
        return CountMoments(mean, square, product)

    def most(self, kind: int, output_is_trigger: bool) -> int:
        """Return the largest count of one token of a kind in z_1 .. z_T that has a positive probability.

        Noise occurs only after a trigger, and a trigger after a trigger only if y is the trigger.
        """
        if kind == NOISE_KIND:
            return (self.length - 1) // 2
        if kind == TRIGGER_KIND or (kind == OUTPUT_KIND and output_is_trigger):
            return self.length if output_is_trigger else self.length // 2 + 1
        return self.length - 1


@cache
def _moments_given(law: UniformRecall, output_is_trigger: bool) -> CountMoments:
    """Return the moments, by recursion over positions of P(z_t = a), E n 1{z_t = a} and E n nᵀ 1{z_t = a}.

    The Markov chain is lumped into five states: noise, trigger, output, one tagged other token, and all other tokens.
    """
    # the transition of the lumped chain: uniform on [N] after every token but the trigger, which leads to y or to noise
    own = 0 if output_is_trigger else 1  # y has its own state
    rest = law.tokens - 2 - own
    uniform = np.array([0, 1, own, 1, rest]) / law.tokens
    transition = np.tile(uniform, (5, 1))
    transition[TRIGGER_KIND] = 0.0
    transition[TRIGGER_KIND, NOISE_KIND] = law.alpha
    transition[TRIGGER_KIND, OUTPUT_KIND if own else TRIGGER_KIND] = 1 - law.alpha
    arriving, every = transition.T.copy(), np.arange(5)
    # by the last state z_t = a: its probability, E n_k 1{z_t = a} as `[a k]`, and E n_k n_l 1{z_t = a} as `[a k l]`
    chance, first, second = uniform, np.diag(uniform), np.zeros((5, 5, 5))
    second[every, every, every] = uniform
    for _ in range(law.length - 2):
        chance, first = arriving @ chance, arriving @ first
        second = (arriving @ second.reshape(5, 25)).reshape(5, 5, 5)
        # the new token a raises n_a by 1, so n_k n_l grows by n_l if k = a, by n_k if l = a, and by 1 if both
        second[every, every, :] += first
        second[every, :, every] += first
        second[every, every, every] += chance
        first[every, every] += chance
    mean, pair = first.sum(axis=0), second.sum(axis=0)  # over z_1 .. z_{T-1}; z_T = q is added below
    pair[TRIGGER_KIND] += mean
    pair[:, TRIGGER_KIND] += mean
    pair[TRIGGER_KIND, TRIGGER_KIND] += 1
    mean[TRIGGER_KIND] += 1
    product = pair[:4, :4].copy()
    np.fill_diagonal(product, np.nan)
    # two different other tokens: the tagged one and all the rest together, divided by how many the rest are
    product[OTHER_KIND, OTHER_KIND] = pair[OTHER_KIND, 4] / rest
    square, mean = np.diag(pair)[:4].copy(), mean[:4].copy()
    if output_is_trigger:
        for values in (mean, square, product, product.T):
            values[OUTPUT_KIND] = values[TRIGGER_KIND]
    return CountMoments(mean, square, product)
