"""The noise logit during training of W_F, and the learning rates for which it stays below its target.

While W_F dominates and all other logits are near 0, the noise has the probability p = exp(ξ) / (N + exp(ξ)). The logit
ξ starts at 0, and each step adds η (α - p). The target ξ* = log N + log(α / (1 - α)) is where p = α. One step from a
gap g = ξ - ξ* < 0 does not overshoot the target if η is at most

    g / (exp(g) / ((1 - α) / α + exp(g)) - α)

Source: truncated weights, appendix A.2, third assumption.
"""

from math import log

import numpy as np
from jaxtyping import Float
from scipy.special import expit

from anchorlab.theory.rank_one_flow import check_alpha


def target_logit(tokens: int, alpha: float) -> float:
    """Return ξ*, the logit at which the noise has probability alpha among `tokens` (N) other tokens with logit 0.

    Errors: `SpecError` for an alpha outside (0, 1), as in every function here.
    """
    return log(tokens) + log(check_alpha(alpha) / (1 - alpha))


def noise_logits(tokens: int, alpha: float, rate: float, steps: int) -> Float[np.ndarray, "time"]:
    """Return ξ at the start and after each of `steps` steps with learning rate `rate` (η)."""
    check_alpha(alpha)
    logits = [0.0]
    for _ in range(steps):
        logits.append(logits[-1] + rate * (alpha - float(expit(logits[-1] - log(tokens)))))
    return np.array(logits)


def safe_rate(alpha: float) -> float:
    """Return 1 / (α (1 - α)), the largest learning rate with which steps near the target do not pass it."""
    return 1 / (check_alpha(alpha) * (1 - alpha))
