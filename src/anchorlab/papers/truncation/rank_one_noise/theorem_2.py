"""Measurements for the study of Theorem 2: gradient descent on the matrix, and the flow at the same times."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Float

from anchorlab.studies.kit import along
from anchorlab.theory import PowerLaw, fit_power_law, gradient_flow
from anchorlab.theory.rank_one_flow import TIME_UNIT, Law, Margins
from anchorlab.training import TrainedRun

RATES = (2.0, 1.0, 0.5)
"""Learning rates of gradient descent, each half of the one before, so that all meet at the same times."""

FLOW_TIMES: Float[np.ndarray, "time"] = np.append(np.outer(10.0 ** np.arange(-1, 6), [1, 1.5, 2, 3, 5, 7]), 1e6)
"""The times at which the flow is evaluated, in the paper's units."""

LATE: Float[np.ndarray, "2"] = np.array([1e4, 1e6])
"""The ends of the window in which the flow is near its limit."""

RANK_ONE = "rank 1"
"""The name of the edit that keeps only the greatest singular value."""

LAWS: Mapping[Law, str] = {"derived": "flow, derived", "printed": "equation (9) as printed"}
"""Both equations, as figures call them."""


@dataclass(frozen=True)
class Descent:
    """Probabilities along gradient descent, at each learning rate."""

    alpha: float  # the probability of noise
    time: Float[np.ndarray, "rate time"]  # in the paper's units
    right: Float[np.ndarray, "rate time"]  # probability of the right output, full matrix
    noise: Float[np.ndarray, "rate time"]  # probability of noise, full matrix
    rank_one_noise: Float[np.ndarray, "rate time"]  # probability of noise, rank 1

    @property
    def margins(self) -> Float[np.ndarray, "margin rate time"]:
        """The two unknowns a and b of the flow, computed from the probabilities."""
        wrong = 1 - self.right - self.noise
        return np.log(np.stack([wrong, self.noise]) / self.right)  # type: ignore[no-any-return]

    def error(self, law: Law) -> Float[np.ndarray, "margin rate time"]:
        """Return a and b minus the flow's values at the same times."""
        flows = [gradient_flow(self.alpha, times, law) for times in self.time]
        return self.margins - np.stack([[flow.a for flow in flows], [flow.b for flow in flows]])  # type: ignore[no-any-return]


def read_descent(run: TrainedRun) -> Descent:
    """Read a finished training at its evaluations."""
    steps, right = along(run, "clean", "right")
    noise, rank_one = (along(run, "clean", "noise", edit)[1] for edit in ("none", RANK_ONE))
    alpha, time = run.experiment.task.model_dump()["alpha"], np.outer(RATES, steps) / TIME_UNIT
    return Descent(alpha, time, right.numpy(), noise.numpy(), rank_one.numpy())


@lru_cache
def late_flow(alpha: float, law: Law = "derived") -> Margins:
    """Return the flow at the two times of `LATE`."""
    return gradient_flow(alpha, LATE, law)


@lru_cache
def flow_power(alpha: float) -> PowerLaw:
    """Return the power law in t of the derived flow's rank-1 noise from the first time of `LATE` on.

    If the odds of noise against the right output are x = C t^(-1/2), P(noise) is x - x^2 to second order, so that log
    P(noise) approaches its line as t^(-1/2); this term is fitted too.
    """
    late = FLOW_TIMES[LATE[0] <= FLOW_TIMES]
    return fit_power_law(late, gradient_flow(alpha, late).rank_one_noise, correction=-0.5)


def descent_power(one: Descent) -> PowerLaw | None:
    """Return the power law of descent at the largest rate, over the last factor 16 of time; None if it is too short."""
    if one.time.shape[1] < 5:
        return None
    return fit_power_law(one.time[0, -5:], one.rank_one_noise[0, -5:], correction=-0.5)


def orders(one: Descent) -> list[float]:
    """Return log2 of the ratio of the largest error at each learning rate to that at half the rate."""
    largest = np.abs(one.error("derived")).max(axis=(0, 2))
    return np.log2(largest[:-1] / largest[1:]).tolist()  # type: ignore[no-any-return]


def at_zero_step(one: Descent, law: Law) -> float:
    """Return the largest error, extrapolated linearly to step size zero from the two smallest learning rates."""
    error = one.error(law)
    return float(np.abs(2 * error[:, -1, 1:] - error[:, -2, :-1]).max())
