"""The margins of Theorem 1 along the number of samples, tokens and positions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import log
from types import MappingProxyType

import numpy as np

from anchorlab.rng import generator
from anchorlab.theory import PowerLaw, fit_power_law
from anchorlab.theory.one_step_margins import (
    alpha_hat,
    attention_bound,
    attention_spread,
    draw_margins,
    feedforward_bound,
    feedforward_spread,
    repeated_token,
    shares_of,
)
from anchorlab.theory.uniform_recall import UniformRecall

DELTA = 0.05
"""The probability that Theorem 1 may fail, for the comparison with its bounds."""

LOGITS: Mapping[str, str] = MappingProxyType(
    {
        "feedforward": "feed-forward",
        "typical": "attention, drawn test sequences",
        "repeated": "attention, one repeated token",
    }
)
"""Whose margins are measured, with their names for people."""

_TYPICAL = 2  # test sequences drawn from the law, beside the repeated token


@dataclass(frozen=True)
class Scan:
    """Points along one of `samples` (m), `tokens` (N) and `length` (T), all else as in `law` and `samples`."""

    law: UniformRecall
    samples: int
    along: str
    values: tuple[int, ...]

    def points(self) -> list[tuple[UniformRecall, int]]:
        """The law and the number of samples at each point."""
        places = [{"tokens": self.law.tokens, "length": self.law.length, "samples": self.samples} for _ in self.values]
        for place, value in zip(places, self.values, strict=True):
            place[self.along] = value
        return [(UniformRecall(one["tokens"], one["length"], self.law.alpha), one["samples"]) for one in places]


@dataclass(frozen=True)
class Margin:
    """The margins of one logit over draws of the training sequences, in units of what Theorem 1 expects of it.

    `values` `[draw test]`; `deviation` is their standard deviation, `predicted` that of the noise logit, exactly, both
    at learning rate 1 and as root mean squares over test sequences. `excess` is the distance from Theorem 1's value
    that 1 - `DELTA` of the draws keep, over its bound without the constant.
    """

    values: np.ndarray
    deviation: float
    predicted: float
    excess: float

    @property
    def within_half(self) -> float:
        """The share of draws whose margin is within half of what is expected."""
        return float((np.abs(self.values - 1) <= 0.5).mean())


@dataclass(frozen=True)
class Point:
    """The margins at one number of samples, tokens and positions, for each of `LOGITS`."""

    samples: int
    margins: Mapping[str, Margin]


@dataclass(frozen=True)
class Scanned:
    """A scan with its points."""

    scan: Scan
    points: Sequence[Point]

    def power(self, logit: str) -> PowerLaw:
        """The power with which the standard deviation of a margin goes along the scan."""
        return self._power([point.margins[logit].deviation for point in self.points])

    def predicted_power(self, logit: str) -> float:
        """That of the exact standard deviation of the noise logit."""
        return self._power([point.margins[logit].predicted for point in self.points]).slope

    def _power(self, values: list[float]) -> PowerLaw:
        return fit_power_law(np.array(self.scan.values, dtype=np.float64), np.array(values))


def measure(law: UniformRecall, samples: int, draws: int) -> Point:
    """Draws so many training sets of `samples` sequences, and takes one step on each."""
    random = partial(generator, 0, "one step")
    tests = law.draw(random("tests", law.tokens, law.length), _TYPICAL).tokens
    shares = np.concatenate([shares_of(tests, law.tokens + 1), repeated_token(law)])
    found = draw_margins(law, samples, draws, shares, random("margins", law.tokens, law.length, samples))
    expected = alpha_hat(law, shares) / law.tokens
    exact = np.array([attention_spread(law, samples, row).deviation for row in shares])
    bound, few = attention_bound(law, samples, DELTA), slice(0, _TYPICAL)
    own = np.array([law.alpha]), np.array([feedforward_spread(law, samples).deviation])
    margins = {
        "feedforward": _margin(found.feedforward[:, None], *own, feedforward_bound(law, samples, DELTA)),
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
    """The margins at each point of a scan."""
    return Scanned(scan, [measure(law, samples, draws) for law, samples in scan.points()])


def samples_needed(points: Sequence[Point], logit: str, share: float = 0.95) -> float:
    """The fewest samples at which so many draws have a margin within half of what is expected; NaN where none has.

    Between two measurements by interpolation on a logarithmic axis; `points` in ascending order of samples.
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
