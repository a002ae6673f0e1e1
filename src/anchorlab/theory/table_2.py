"""Lemma D.1 and Table 2 of the truncated-weights paper: every entry as printed, as derived, and as sampled."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import log, sqrt
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float

from anchorlab.rng import generator
from anchorlab.theory import one_step
from anchorlab.theory.one_step import ENTRIES, TABLE_2, Entry, Moments
from anchorlab.theory.uniform_recall import UniformRecall

DELTA = 0.1
"""The failure probability of Lemmas D.1 and D.2, in checks of their bounds."""

_Formula = Callable[[float, float, float], float]


@dataclass(frozen=True)
class Printed:
    """An entry as printed in the paper, as text and as formulas in (N, T, alpha); illegible parts are … and None."""

    mean_text: str
    mean: _Formula | None
    variance_text: str
    variance: _Formula | None
    reach_text: str


_NOISE_ROW: _Formula = lambda n, t, a: a / (t * n) + (a - a**2) / n**2  # noqa: E731 - a table of formulas
_LIKE_OTHER: _Formula = lambda n, t, a: (2 - a) * (1 / (t * n**2) + 1 / n**3)  # noqa: E731
PRINTED: dict[Entry, Printed] = {
    ("noise", "noise"): Printed(
        "α²/N", lambda n, t, a: a**2 / n,
        "α²/(TN) + (α³-α⁴)/N²", lambda n, t, a: a**2 / (t * n) + (a**3 - a**4) / n**2, "1/2",
    ),
    ("noise", "trigger"): Printed("-α/N", lambda n, t, a: -a / n, "α/(TN) + (α-α²)/N²", _NOISE_ROW, "…"),
    ("noise", "other"): Printed("-α/N", lambda n, t, a: -a / n, "α/(TN) + (α-α²)/N²", _NOISE_ROW, "…"),
    ("trigger", "noise"): Printed(
        "(2α-1)/N²", lambda n, t, a: (2 * a - 1) / n**2,
        "… + (α²-α+1)/N³", None, "1/2",
    ),
    ("trigger", "trigger"): Printed(
        "(2α-1)/(αN²)", lambda n, t, a: (2 * a - 1) / (a * n**2),
        "… + (α²-α+1)/(α²N³)", None, "…",
    ),
    ("trigger", "other"): Printed("α/N²", lambda n, t, a: a / n**2, "(2-α)(1/(TN²) + 1/N³)", _LIKE_OTHER, "…"),
    ("other", "noise"): Printed(
        "α²/N²", lambda n, t, a: a**2 / n**2,
        "(2-α)(α/(TN²) + α²/N³)", lambda n, t, a: (2 - a) * (a / (t * n**2) + a**2 / n**3), "1/3",
    ),
    ("other", "trigger"): Printed("α/N²", lambda n, t, a: a / n**2, "(2-α)(1/(TN²) + 1/N³)", _LIKE_OTHER, "1/2"),
    ("other", "same"): Printed(
        "…/N²", None, "[1+(1-α)(2-α)]/(TN²) + [1+(1-α)(2-α)²]/N³",
        lambda n, t, a: (1 + (1 - a) * (2 - a)) / (t * n**2) + (1 + (1 - a) * (2 - a) ** 2) / n**3, "…",
    ),
    ("other", "other"): Printed("…/N²", None, "(2-α)(1/(TN²) + 1/N³)", _LIKE_OTHER, "…"),
}  # fmt: skip

LEMMA_D1: dict[Literal["noise", "other"], Printed] = {
    "noise": Printed("-α", lambda n, t, a: -a, "α(1-α)", lambda n, t, a: a * (1 - a), "max{α, 1-α}"),
    "other": Printed(
        "1/(N+1) - (1-α)/N", lambda n, t, a: 1 / (n + 1) - (1 - a) / n, "(1-α)/N", lambda n, t, a: (1 - a) / n, "1",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Drawn:
    """Mean and variance of every entry in each of several sampled batches of sequences, with the exact moments.

    The first two entries are from Lemma D.1 (noise, a token of [N]), the other entries from Table 2. `kept` is True for
    the batches in which every projection is within the bounds of the lemmas at `DELTA`. In the methods, `means` chooses
    between the means (True) and the variances (False).
    """

    law: UniformRecall
    exact: tuple[Moments, ...]
    means: Float[np.ndarray, "entry batch"]
    variances: Float[np.ndarray, "entry batch"]
    kept: Bool[np.ndarray, "batch"]

    def of(self, means: bool) -> Float[np.ndarray, "entry batch"]:
        """Return the means or variances of the drawn batches."""
        return self.means if means else self.variances

    def expected(self, means: bool) -> Float[np.ndarray, "entry"]:
        """Return the exact means or variances."""
        return np.array([one.mean if means else one.variance for one in self.exact])

    def errors(self, means: bool) -> Float[np.ndarray, "entry"]:
        """Return the standard errors of the drawn means or variances over batches."""
        drawn = self.of(means)
        return np.asarray(drawn.std(axis=1, ddof=1) / sqrt(drawn.shape[1]))

    def scores(self, means: bool) -> Float[np.ndarray, "entry"]:
        """Return the distance of the drawn means or variances from the exact ones, in standard errors."""
        return np.asarray((self.of(means).mean(axis=1) - self.expected(means)) / self.errors(means))


def draw_moments(law: UniformRecall, batches: int, size: int) -> Drawn:
    """Return the moments of the gradients on `batches` drawn batches of `size` sequences."""
    feedforward = [one_step.feedforward_moments(law, "noise"), one_step.feedforward_moments(law, "other")]
    exact = (*feedforward, *(one_step.value_moments(law, entry) for entry in ENTRIES))
    means, variances, kept = [], [], list[bool]()
    plain, unbiased = 1 / (law.tokens + 1), size / (size - 1)
    for batch in range(batches):
        sample = law.draw(generator(0, "one step", "moments", batch), size)
        gradient = one_step.feedforward_gradient(sample, law.tokens)
        # the mean square of 1/(N+1) - 1{y = k}, computed from its mean: the indicator equals its square
        squares = plain**2 + (1 - 2 * plain) * (plain - gradient)
        value, value_squares = one_step.value_gradient(sample, law.tokens), one_step.value_squares(sample, law.tokens)
        spread, value_spread = unbiased * (squares - gradient**2), unbiased * (value_squares - value**2)
        means.append([gradient[-1], gradient[:-1].mean(), *(one_step.average(value, entry) for entry in ENTRIES)])
        variances.append([spread[-1], spread[:-1].mean(), *(one_step.average(value_spread, one) for one in ENTRIES)])
        kept.append(_keeps_bounds(law, exact, gradient, value, size))
    return Drawn(law, exact, np.array(means).T, np.array(variances).T, np.array(kept))


def _keeps_bounds(
    law: UniformRecall, exact: Sequence[Moments], gradient: np.ndarray, value: np.ndarray, size: int
) -> bool:
    """Return whether all projections are within the bounds (10) and (16), evaluated with the exact moments."""

    def bound(moments: Moments, union: int) -> float:
        logarithm = union * log(law.tokens + 1) + log(2 / DELTA)
        return sqrt(4 * moments.variance * logarithm / size) + 4 * moments.reach * logarithm / size

    noise, other, *entries = exact
    kept = [
        abs(gradient[-1] - noise.mean) <= bound(noise, 1),
        np.abs(gradient[:-1] - other.mean).max() <= bound(other, 1),
    ]
    for entry, moments in zip(ENTRIES, entries, strict=True):
        outside = np.abs(value - moments.mean) > bound(moments, 2)
        kept.append(one_step.average(outside.astype(np.float64), entry) == 0)
    return bool(all(kept))


def verdict(printed: _Formula | None, derived: _Formula) -> str:
    """Return whether our derivation confirms a printed formula, for N >> 1 and T from far below N to far above.

    The answer is `confirmed`, `confirmed but for the sign`, `confirmed for T ≫ N`, `corrected` or `illegible`.
    """
    if printed is None:
        return "illegible"
    tokens, agrees = 1e4, []
    for length in (1e2, 1e4, 1e8):
        ratios = np.array([printed(tokens, length, alpha) / derived(tokens, length, alpha) for alpha in (0.3, 0.6)])
        if np.abs(ratios + 1).max() < 0.01:
            return "confirmed but for the sign"
        agrees.append(bool(np.abs(ratios - 1).max() < 0.01))
    if all(agrees):
        return "confirmed"
    return "confirmed for T ≫ N" if agrees[-1] else "corrected"


def verdicts(means: bool) -> list[str]:
    """Return the verdict on the mean (if `means`) or the variance of every entry of Table 2."""
    moment = "mean" if means else "variance"
    return [verdict(getattr(PRINTED[entry], moment), getattr(TABLE_2[entry], moment)) for entry in ENTRIES]


def lemma_verdicts(means: bool) -> list[str]:
    """Return the verdict on the mean (if `means`) or the variance of both entries of Lemma D.1."""
    moment = "mean" if means else "variance"

    def exact(output: Literal["noise", "other"], n: float, t: float, a: float) -> float:
        found: float = getattr(one_step.feedforward_moments(UniformRecall(int(n), int(t), a), output), moment)
        return found

    return [verdict(getattr(one, moment), partial(exact, output)) for output, one in LEMMA_D1.items()]


def share_right(means: bool) -> float:
    """Return the share of legible means (if `means`) or variances that are confirmed for T >> N, ignoring signs."""
    legible = [one for one in verdicts(means) if one != "illegible"]
    return sum(one.startswith("confirmed") for one in legible) / len(legible)
