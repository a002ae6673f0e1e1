"""Measure how the margins of Theorem 1 change with the number of samples, tokens or positions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import log
from types import MappingProxyType

import numpy as np
from jaxtyping import Float

from anchorlab.rng import generator
from anchorlab.theory import PowerLaw, fit_power_law
from anchorlab.theory import one_step_margins as step
from anchorlab.theory.uniform_recall import UniformRecall

DELTA = 0.05
"""The failure probability of Theorem 1, in comparisons of margins with its bounds."""

LOGITS: Mapping[str, str] = MappingProxyType(
    {
        "feedforward": "feed-forward",
        "typical": "attention, drawn test sequences",
        "repeated": "attention, one repeated token",
    }
)
"""The logits whose margins are measured, with their names in figures and tables."""

_TYPICAL = 2  # test sequences drawn from the law, in addition to the repeated token


@dataclass(frozen=True)
class Scan:
    """A series of settings that differ in one number.

    Fields
        law: the distribution of sequences
        samples: the number of training sequences, m
        along: the number that varies: `samples` (m), `tokens` (N) or `length` (T)
        values: the values of this number, which replace its value in `law` or `samples`
    """

    law: UniformRecall
    samples: int
    along: str
    values: tuple[int, ...]

    def points(self) -> list[tuple[UniformRecall, int]]:
        """Return the law and the number of samples at each point."""
        if self.along == "samples":
            return [(self.law, value) for value in self.values]
        return [(replace(self.law, **{self.along: value}), self.samples) for value in self.values]


@dataclass(frozen=True)
class Margin:
    """The margins of one logit over draws of the training sequences, in units of Theorem 1's value.

    Fields
        values: the margins
        deviation: the standard deviation of the margin over draws at learning rate 1 (root mean square over tests)
        predicted: the exact standard deviation of the noise logit (root mean square over tests)
        excess: the 1 - `DELTA` quantile over draws of the distance from Theorem 1's value, the largest over test
            sequences, divided by the theorem's bound without its constant
    """

    values: Float[np.ndarray, "draw test"]
    deviation: float
    predicted: float
    excess: float

    @property
    def within_half(self) -> float:
        """The share of draws whose margin is within half of Theorem 1's value."""
        return float((np.abs(self.values - 1) <= 0.5).mean())


@dataclass(frozen=True)
class Point:
    """The margins for each of `LOGITS` at one setting of samples, tokens and positions."""

    samples: int
    margins: Mapping[str, Margin]


@dataclass(frozen=True)
class Scanned:
    """A scan with the margins measured at each of its points."""

    scan: Scan
    points: Sequence[Point]

    def power(self, logit: str) -> PowerLaw:
        """Return the power law of a margin's standard deviation along the scan; `logit` is one of `LOGITS`."""
        return self._power([point.margins[logit].deviation for point in self.points])

    def predicted_power(self, logit: str) -> float:
        """Return the exponent of the power law of the noise logit's exact standard deviation along the scan."""
        return self._power([point.margins[logit].predicted for point in self.points]).slope

    def _power(self, values: list[float]) -> PowerLaw:
        return fit_power_law(np.array(self.scan.values, dtype=np.float64), np.array(values))


def measure(law: UniformRecall, samples: int, draws: int) -> Point:
    """Return the margins after one gradient step on each of `draws` training sets of `samples` sequences."""
    random = partial(generator, 0, "one step")
    tests = law.draw(random("tests", law.tokens, law.length), _TYPICAL).tokens
    shares = np.concatenate([step.shares_of(tests, law.tokens + 1), step.repeated_token(law)])
    found = step.draw_margins(law, samples, draws, shares, random("margins", law.tokens, law.length, samples))
    expected = step.alpha_hat(law, shares) / law.tokens
    exact = np.array([step.attention_spread(law, samples, row).deviation for row in shares])
    bound, few = step.attention_bound(law, samples, DELTA), slice(0, _TYPICAL)
    own = np.array([law.alpha]), np.array([step.feedforward_spread(law, samples).deviation])
    margins = {
        "feedforward": _margin(found.feedforward[:, None], *own, step.feedforward_bound(law, samples, DELTA)),
        "typical": _margin(found.attention[:, few], expected[few], exact[few], bound),
        "repeated": _margin(found.attention[:, _TYPICAL:], expected[_TYPICAL:], exact[_TYPICAL:], bound),
    }
    return Point(samples, margins)


def _margin(values: np.ndarray, expected: np.ndarray, exact: np.ndarray, bound: float) -> Margin:
    away = np.quantile(np.abs(values - expected), 1 - DELTA, axis=0).max()
    return Margin(
        values / expected,
        float(np.sqrt(values.var(axis=0, ddof=1).mean())),
        float(np.sqrt((exact**2).mean())),
        float(away / bound),
    )


def measure_scan(scan: Scan, draws: int) -> Scanned:
    """Return a scan with the margins at each of its points, over `draws` training sets each."""
    return Scanned(scan, [measure(law, samples, draws) for law, samples in scan.points()])


def samples_needed(points: Sequence[Point], logit: str, share: float = 0.95) -> float:
    """Return the least number of samples at which `share` of the draws have margins within half of Theorem 1's value.

    Interpolates between two measurements, logarithmically in samples; `points` must be in ascending order of samples.
    NaN if no point reaches the share.
    """
    kept = [point.margins[logit].within_half for point in points]
    after = next((index for index, value in enumerate(kept) if value >= share), None)
    if after is None:
        return float("nan")
    if after == 0:
        return float(points[0].samples)
    part = (share - kept[after - 1]) / (kept[after] - kept[after - 1])
    low, high = log(points[after - 1].samples), log(points[after].samples)
    return float(np.exp(low + part * (high - low)))
