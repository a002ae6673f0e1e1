"""Gradient flow of the noisy associative memory with any number of inputs: which singular value stores the noise.

With orthonormal embeddings and W = 0 at the start, all n inputs are alike. The scores of an input are s for its own
output, w for the outputs of the other inputs and v for the noise, with s + (n - 1) w + v = 0. The predictions follow
from the margins a = w - s and b = v - s. With time in units of n (learning rate times steps), the gradient of the mean
cross-entropy over all inputs gives

    da/dt = -P(each wrong) - (1 - α - P(right)),    db/dt = α - P(noise) - (1 - α - P(right))

W is the sum of two parts with orthogonal rows and columns. One separates the outputs of the inputs and has n - 1 equal
singular values |a|. The other has rank one and stores the noise: it gives every input the score v for the noise and
-v / n for each other output, and its singular value is sqrt(n + 1) |v| with v = (n b - (n - 1) a) / (n + 1).

Source: truncated weights, section 5 and appendix C.1 (iii); the equations are our own.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from anchorlab.errors import SpecError
from anchorlab.theory.rank_one_flow import Curve, check_alpha, check_times


@dataclass(frozen=True)
class MemoryFlow:
    """The state of the flow: a = log P(one wrong output) / P(right) and b = log P(noise) / P(right), at each time."""

    inputs: int
    time: Curve
    a: Curve
    b: Curve

    @property
    def signal_value(self) -> Curve:
        """The n - 1 equal singular values of the part that separates the inputs' outputs."""
        return np.asarray(np.abs(self.a))

    @property
    def noise_value(self) -> Curve:
        """The singular value of the part that stores the noise."""
        n = self.inputs
        return np.asarray(np.abs(n * self.b - (n - 1) * self.a) / np.sqrt(n + 1))

    @property
    def loss(self) -> Curve:
        """The pure-label loss of W."""
        return np.asarray(np.log(1 + (self.inputs - 1) * np.exp(self.a) + np.exp(self.b)))

    @property
    def loss_without_noise(self) -> Curve:
        """The pure-label loss of W without the part that stores the noise; the noise's margin is then (1 - 1/n) a."""
        n = self.inputs
        return np.asarray(np.log(1 + (n - 1) * np.exp(self.a) + np.exp((1 - 1 / n) * self.a)))


def memory_flow(inputs: int, alpha: float, time: Curve) -> MemoryFlow:
    """Return the flow from W = 0 at the given times, in units of n (learning rate times steps).

    Errors: `SpecError` for fewer than 2 inputs, for an alpha outside (0, 1), and for times that are negative or not
    strictly ascending.
    """
    from scipy.integrate import solve_ivp  # half a second, which commands that need no flow would wait for

    if inputs < 2:
        raise SpecError("inputs", f"{inputs} have no other output to be told from", "give at least 2")
    check_alpha(alpha)
    check_times(time)

    def change(_: float, state: Float[np.ndarray, "2"]) -> Float[np.ndarray, "2"]:
        wrong, noise = np.exp(state)
        # probabilities from the two margins: one right output, n - 1 equal wrong ones, and the noise
        right, wrong, noise = np.array([1.0, wrong, noise]) / (1 + (inputs - 1) * wrong + noise)
        missing = 1 - alpha - right
        return np.array([-wrong - missing, alpha - noise - missing])

    done = solve_ivp(change, (0.0, float(time[-1])), np.zeros(2), "LSODA", t_eval=time, rtol=1e-9, atol=1e-11)
    return MemoryFlow(inputs, time, done.y[0], done.y[1])
