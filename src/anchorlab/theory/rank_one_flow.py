"""Gradient flow of the noisy associative memory with two inputs: Theorem 2 and Lemma E.3 as an ODE, with its limits.

With orthonormal embeddings, written in their basis, and W = 0 at the start, W stays in the span of two matrices:

    W = β₁ (1, -1, 0)ᵀ (1, -1) + β₂ (1, 1, -2)ᵀ (1, 1)

The first separates the two outputs, the second stores the noise. The predictions follow from two margins,
a = log P(wrong) / P(right) = -2 β₁ and b = log P(noise) / P(right) = -β₁ - 3 β₂.

The gradient of the mean cross-entropy over both inputs, projected on the two matrices, gives

    dβ₁/dt = (1 - α - P(right) + P(wrong)) / 4,    dβ₂/dt = κ (P(noise) - α) / 4

with κ = 1. The paper's equations (8) and (9) have κ = 3: they take inner products of the gradient with both matrices
without dividing by the squared norms of the matrices, 4 and 12. This module measures time as the paper does: one unit
is 4 units of the time t above, so that the factors 1/4 vanish.

Source: truncated weights, section 5, appendix C, Lemma E.3.
"""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np
from jaxtyping import Float

from anchorlab.errors import SpecError

Law = Literal["derived", "printed"]
"""The flow itself (κ = 1), or equation (9) as the paper prints it (κ = 3)."""

TIME_UNIT = 4.0
"""One unit of this module's time, in gradient-flow time of the mean cross-entropy (learning rate times steps)."""

_NOISE_SPEED = MappingProxyType({"derived": 1.0, "printed": 3.0})  # κ

Curve = Float[np.ndarray, "time"]
"""Times, or a quantity at each of them."""


@dataclass(frozen=True)
class Margins:
    """The state of the flow at each time: a = log P(wrong) / P(right) and b = log P(noise) / P(right)."""

    time: Curve
    a: Curve
    b: Curve

    @property
    def noise(self) -> Curve:
        """P(noise) under the full matrix."""
        return _noise(self.a, self.b)

    @property
    def wrong(self) -> Curve:
        """P(wrong) under the full matrix."""
        return _noise(self.b, self.a)

    @property
    def rank_one_noise(self) -> Curve:
        """P(noise) if only the larger singular value is kept: 2 |β₁| (first matrix) or √12 |β₂| (second matrix)."""
        beta_1, beta_2 = -self.a / 2, (self.a / 2 - self.b) / 3
        first = _noise(-2 * beta_1, -beta_1)
        second = _noise(np.zeros_like(beta_2), -3 * beta_2)
        return np.where(2 * np.abs(beta_1) >= np.sqrt(12) * np.abs(beta_2), first, second)


def gradient_flow(alpha: float, time: Curve, law: Law = "derived") -> Margins:
    """Return the margins of the flow from W = 0 at the given times, to a relative accuracy of about 1e-9.

    Errors: `SpecError` for an alpha outside (0, 1), as in every function here, and for times that are negative or not
    strictly ascending.
    """
    from scipy.integrate import solve_ivp  # half a second, which commands that need no flow would wait for

    check_alpha(alpha)
    check_times(time)
    speed = _NOISE_SPEED[law]

    def change(_: float, state: Float[np.ndarray, "2"]) -> Float[np.ndarray, "2"]:
        wrong, noise = np.exp(state) / (1 + np.exp(state).sum())
        # 1 - α - P(right) + P(wrong) = 2 P(wrong) + P(noise) - α, as the three probabilities add up to 1
        d_beta_1, d_beta_2 = 2 * wrong + noise - alpha, speed * (noise - alpha)
        return np.array([-2 * d_beta_1, -d_beta_1 - 3 * d_beta_2])

    done = solve_ivp(change, (0.0, float(time[-1])), np.zeros(2), "LSODA", t_eval=time, rtol=1e-10, atol=1e-12)
    return Margins(time, done.y[0], done.y[1])


def b_limit(alpha: float) -> float:
    """Return the limit of b for t → ∞ under either law: log(α / (1 - α))."""
    return float(np.log(check_alpha(alpha) / (1 - alpha)))


def a_offset(alpha: float, law: Law = "derived") -> float:
    """Return the limit of a + log t: -log(c (1 - α)) with c = 12 κ / (3 κ + 1), which is 3, or 18/5 as printed.

    P(wrong) decays as 1 / t, so slowly that b stays at equilibrium: to first order db/dt = 0 gives
    (6 κ + 2) (P(noise) - α) = -4 P(wrong), and then da/dt = -c P(wrong) = -c (1 - α) exp a.
    """
    speed = _NOISE_SPEED[law]
    return float(-np.log(12 * speed / (3 * speed + 1) * (1 - check_alpha(alpha))))


def lemma_a_offset(alpha: float) -> float:
    """Return the limit of a + log t in Lemma E.3: -log((1 - α) (4 - 2 α)); the lemma sets b to its limit too early."""
    return float(-np.log((1 - check_alpha(alpha)) * (4 - 2 * alpha)))


def rank_one_coefficient(alpha: float, law: Law = "derived") -> float:
    """Return C in P(noise) → C t^(-1/2) at rank 1. The noise margin is a / 2 there, so C = exp(`a_offset` / 2)."""
    return float(np.exp(a_offset(alpha, law) / 2))


def _noise(wrong: Curve, noise: Curve) -> Curve:
    """Return P(noise) from the two margins over the right output; P(wrong) if the margins are swapped."""
    probability: Curve = np.exp(noise) / (1 + np.exp(wrong) + np.exp(noise))
    return probability


def check_alpha(alpha: float) -> float:
    """Return `alpha`, a probability of noise. Errors: `SpecError` if it is outside (0, 1)."""
    if np.ndim(alpha) or not 0 < alpha < 1:
        raise SpecError("alpha", f"{alpha} is not one number between 0 and 1", "give a probability, such as 0.3")
    return alpha


def check_times(time: Curve) -> None:
    """Raise `SpecError` for times that are negative or not strictly ascending, or end at 0 or never."""
    if len(time) == 0 or not (time[0] >= 0 and 0 < time[-1] < np.inf and (np.diff(time) > 0).all()):
        raise SpecError("time", "does not ascend from 0 on", "sort the times and name each once")
