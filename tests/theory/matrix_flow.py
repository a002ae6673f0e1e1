"""The gradient flow of the noisy associative memory itself, on every score."""

import numpy as np
from scipy.integrate import solve_ivp


def probabilities(W):
    """P(y | x) of scores `[output input]`."""
    odds = np.exp(W)
    return odds / odds.sum(axis=0)


def matrix_flow(inputs, alpha, times):
    """The flow of the mean cross-entropy from zero: `[time output input]`, times in units of the number of inputs."""
    law = np.vstack([(1 - alpha) * np.eye(inputs), np.full(inputs, alpha)])

    def change(_, state):
        return (law - probabilities(state.reshape(law.shape))).ravel()

    done = solve_ivp(change, (0, times[-1] + 1), np.zeros(law.size), "DOP853", t_eval=times, rtol=1e-10, atol=1e-12)
    return done.y.T.reshape(-1, *law.shape)
