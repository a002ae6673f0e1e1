"""What the study of Theorem 2 measures: gradient descent on the matrix, beside the flow at the same times."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from anchorlab.studies.kit import along
from anchorlab.theory import PowerLaw, fit_power_law, gradient_flow
from anchorlab.theory.rank_one_flow import TIME_UNIT, Law
from anchorlab.training import TrainedRun

Margins = Float[np.ndarray, "margin rate time"]
"""a and b of every learning rate."""

RATES = (2.0, 1.0, 0.5)
"""Learning rates of gradient descent, each half of the one before, so that all meet at the same times."""

FLOW_TIMES: Float[np.ndarray, "time"] = np.append(np.outer(10.0 ** np.arange(-1, 6), [1, 1.5, 2, 3, 5, 7]), 1e6)
"""Where the flow is looked at, in the paper's time."""

RANK_ONE = "rank 1"
"""What the edit that keeps only the greatest singular value is called."""

LAWS: Mapping[Law, str] = {"derived": "flow, derived", "printed": "equation (9) as printed"}
"""Both equations, as figures call them."""


@dataclass(frozen=True)
class Descent:
    """What gradient descent has made, each `[rate time]` over its own `time`, `[rate time]` in the paper's unit."""

    alpha: float
    time: Float[np.ndarray, "rate time"]
    right: Float[np.ndarray, "rate time"]
    noise: Float[np.ndarray, "rate time"]
    rank_one_noise: Float[np.ndarray, "rate time"]

    @property
    def margins(self) -> Margins:
        """a and b."""
        margins: Margins = np.log(np.stack([1 - self.right - self.noise, self.noise]) / self.right)
        return margins

    def error(self, law: Law) -> Margins:
        """How far a and b lie above those of the flow at the same times."""
        flows = [gradient_flow(self.alpha, times, law) for times in self.time]
        above: Margins = self.margins - np.stack([[flow.a for flow in flows], [flow.b for flow in flows]])
        return above


def read_descent(run: TrainedRun) -> Descent:
    """A finished training at its evaluations."""
    alpha = run.experiment.task.model_dump()["alpha"]
    steps, right = along(run, "clean", "right")
    noise, rank_one = (along(run, "clean", "noise", edit)[1] for edit in ("none", RANK_ONE))
    time = np.outer(RATES, steps) / TIME_UNIT
    return Descent(alpha, time, right.numpy(), noise.numpy(), rank_one.numpy())


def off_full(one: Descent) -> float:
    """How far the full matrix's probabilities are from those of the data, at the end of the largest learning rate."""
    return max(abs(float(one.noise[0, -1]) - one.alpha), abs(float(one.right[0, -1]) - 1 + one.alpha))


def flow_slope(alpha: float) -> PowerLaw:
    """The power of t by which the derived flow's rank-1 noise fades, over t from 1e4 to 1e6."""
    late = FLOW_TIMES[FLOW_TIMES >= 1e4]
    return fit_power_law(late, gradient_flow(alpha, late).rank_one_noise)


def descent_slope(one: Descent) -> PowerLaw | None:
    """The same of gradient descent at the largest learning rate, over the last factor 16 of time; None if shorter."""
    if one.time.shape[1] < 5:
        return None
    return fit_power_law(one.time[0, -5:], one.rank_one_noise[0, -5:])


def orders(one: Descent) -> list[float]:
    """log2 of the largest error at each learning rate but the last, over that at the next, half as large."""
    largest = np.abs(one.error("derived")).max(axis=(0, 2))
    found: list[float] = np.log2(largest[:-1] / largest[1:]).tolist()
    return found


def at_zero_step(one: Descent, law: Law) -> float:
    """The largest error at step size zero, to which the two smallest learning rates point at the times they share."""
    error = one.error(law)
    return float(np.abs(2 * error[:, -1, 1:] - error[:, -2, :-1]).max())
