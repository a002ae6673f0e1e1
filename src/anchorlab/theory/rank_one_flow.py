"""Gradient flow of the noisy associative memory with two inputs: Theorem 2 and Lemma E.3, as an ODE and its limits.

With orthonormal embeddings, written in their basis, and W = 0 at the start, W stays in the span of two matrices:

    W = β₁ (1, -1, 0)ᵀ (1, -1) + β₂ (1, 1, -2)ᵀ (1, 1)

The first tells the two outputs apart, the second holds the noise. All that the model predicts lies in the two margins
a = log P(wrong) / P(right) = -2 β₁ and b = log P(noise) / P(right) = -β₁ - 3 β₂.

Following the gradient of the mean cross-entropy over both inputs, projected on each of the two matrices,

    dβ₁/dt = (1 - α - P(right) + P(wrong)) / 4,    dβ₂/dt = κ (P(noise) - α) / 4

with κ = 1. The paper's equations (8) and (9) have κ = 3: they take the gradient's inner products with both matrices and
do not divide by the matrices' own squared lengths, 4 and 12. The paper's time runs four times slower than that of the
mean loss; everything here is in the paper's time, in which the factors 1/4 are gone.

Source: truncated weights, section 5, appendix C, Lemma E.3.
"""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np
from jaxtyping import Float
from scipy.integrate import solve_ivp

from anchorlab.errors import SpecError

Law = Literal["derived", "printed"]
"""The flow itself (κ = 1), or equation (9) as the paper prints it (κ = 3)."""

TIME_UNIT = 4.0
"""Gradient-flow time of the mean cross-entropy over two inputs (learning rate times steps) in one unit of time here."""

_NOISE_SPEED = MappingProxyType({"derived": 1.0, "printed": 3.0})  # κ

Curve = Float[np.ndarray, "time"]


@dataclass(frozen=True)
class Margins:
    """What the flow has made at each time: a = log P(wrong) / P(right) and b = log P(noise) / P(right)."""

    time: Curve
    a: Curve
    b: Curve

    @property
    def noise(self) -> Curve:
        """P(noise) under the full matrix."""
        return _noise(self.a, self.b)

    @property
    def rank_one_noise(self) -> Curve:
        """P(noise) when only the greater singular value is kept: 2 |β₁| of the first matrix, √12 |β₂| of the second."""
        tells, stores = -self.a / 2, (self.a / 2 - self.b) / 3
        first = _noise(-2 * tells, -tells)
        second = _noise(np.zeros_like(stores), -3 * stores)
        return np.where(2 * np.abs(tells) >= np.sqrt(12) * np.abs(stores), first, second)


def gradient_flow(alpha: float, time: Curve, law: Law = "derived") -> Margins:
    """The flow from W = 0 at ascending times from 0 on, integrated to a relative accuracy of about 1e-9.

    Errors: `SpecError` for an alpha outside (0, 1), and for times that do not ascend or are negative.
    """
    _check(alpha)
    if len(time) == 0 or time[0] < 0 or (np.diff(time) <= 0).any():
        raise SpecError("time", "does not ascend from 0 on", "sort the times and name each once")
    speed = _NOISE_SPEED[law]

    def change(_: float, state: Float[np.ndarray, "2"]) -> Float[np.ndarray, "2"]:
        wrong, noise = np.exp(state) / (1 + np.exp(state).sum())
        d_tells, d_stores = 2 * wrong + noise - alpha, speed * (noise - alpha)
        return np.array([-2 * d_tells, -d_tells - 3 * d_stores])

    done = solve_ivp(change, (0.0, float(time[-1])), np.zeros(2), "LSODA", t_eval=time, rtol=1e-10, atol=1e-12)
    return Margins(time, done.y[0], done.y[1])


def b_limit(alpha: float) -> float:
    """Where b goes under either law: log α / (1 - α).

    Errors: `SpecError` for an alpha outside (0, 1).
    """
    _check(alpha)
    return float(np.log(alpha / (1 - alpha)))


def a_offset(alpha: float, law: Law = "derived") -> float:
    """Where a + log t goes: -log (c (1 - α)) with c = 12 κ / (3 κ + 1), which is 3, and 18/5 for the printed law.

    P(wrong) fades as 1 / t and so slowly that P(noise) follows at the distance where b rests: from db/dt = 0 to first
    order, (6 κ + 2) (P(noise) - α) = -4 P(wrong). With it, da/dt = -c P(wrong) = -c (1 - α) exp a.

    Errors: `SpecError` for an alpha outside (0, 1).
    """
    _check(alpha)
    speed = _NOISE_SPEED[law]
    return float(-np.log(12 * speed / (3 * speed + 1) * (1 - alpha)))


def lemma_a_offset(alpha: float) -> float:
    """Where Lemma E.3 has a + log t go: -log ((1 - α) (4 - 2 α)), which puts b at its limit before it is there.

    Errors: `SpecError` for an alpha outside (0, 1).
    """
    _check(alpha)
    return float(-np.log((1 - alpha) * (4 - 2 * alpha)))


def rank_one_coefficient(alpha: float, law: Law = "derived") -> float:
    """C of P(noise) → C t^(-1/2) under rank 1: there the noise's margin is a / 2, so that C = exp(`a_offset` / 2).

    Errors: `SpecError` for an alpha outside (0, 1).
    """
    return float(np.exp(a_offset(alpha, law) / 2))


def _noise(wrong: Curve, noise: Curve) -> Curve:
    """P(noise) from the margins of the wrong output and of the noise against the right one."""
    probability: Curve = np.exp(noise) / (1 + np.exp(wrong) + np.exp(noise))
    return probability


def _check(alpha: float) -> None:
    if not 0 < alpha < 1:
        raise SpecError("alpha", f"{alpha:g} is not between 0 and 1", "use the probability of the noise, such as 0.3")
