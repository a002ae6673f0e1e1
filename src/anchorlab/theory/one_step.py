"""The first gradient step of one attention layer with a linear feed-forward layer: exact moments and leading orders.

The logits are W_U (W_V sum_t softmax(x_T W_KQ x_t)_t x_t + W_F x_T) with x_t = W_E(z_t), orthonormal embeddings and
unembeddings, and all other weights zero. So every predicted probability is 1 / (N + 1), attention is uniform, the
gradient of W_KQ is zero, and each projection of a gradient is a mean over sequences, with n_k the count of token k:

    W_U(k)ᵀ grad_F W_E(q) = mean of 1/(N+1) - 1{y = k}
    W_U(j)ᵀ grad_V W_E(k) = mean of (1/(N+1) - 1{y = j}) n_k / T

Source: truncated weights, section 4.1 and appendix D.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from anchorlab.errors import SpecError
from anchorlab.theory.uniform_recall import (
    NOISE_KIND,
    OTHER_KIND,
    OUTPUT_KIND,
    TRIGGER,
    TRIGGER_KIND,
    Sequences,
    UniformRecall,
)

Token = Literal["noise", "trigger", "other", "same"]
"""`noise`: the noise token N + 1; `trigger`: the trigger q; `other`: a token of [N] other than q; `same`, as an input
only: the same token as the output."""

Entry = tuple[Token, Token]
"""The output j and the input k of a projection W_U(j)ᵀ grad_V W_E(k)."""

ENTRIES: tuple[Entry, ...] = (
    ("noise", "noise"), ("noise", "trigger"), ("noise", "other"),
    ("trigger", "noise"), ("trigger", "trigger"), ("trigger", "other"),
    ("other", "noise"), ("other", "trigger"), ("other", "same"), ("other", "other"),
)  # fmt: skip
"""The rows of Table 2, in its order."""

_KINDS = {"noise": NOISE_KIND, "trigger": TRIGGER_KIND, "same": OUTPUT_KIND, "other": OTHER_KIND}


@dataclass(frozen=True)
class Moments:
    """One sequence's contribution to a projected gradient: its mean, variance and largest deviation from the mean."""

    mean: float
    variance: float
    reach: float


def feedforward_gradient(sample: Sequences, tokens: int) -> Float[np.ndarray, "output"]:
    """Return W_U(k)ᵀ grad_F W_E(q) at zero weights for every output k; `tokens` is N.

    For every other input token the gradient is zero, because z_T = q in every sequence.
    """
    return np.asarray(1 / (tokens + 1) - np.bincount(sample.targets, minlength=tokens + 1) / sample.targets.size)


def value_gradient(sample: Sequences, tokens: int) -> Float[np.ndarray, "output token"]:
    """Return W_U(j)ᵀ grad_V W_E(k) at zero weights for every output j and token k; `tokens` is N."""
    shares = sample.counts(tokens) / len(sample.tokens)
    answered = np.eye(tokens + 1)[sample.targets]
    return np.asarray(shares.mean(axis=0) / (tokens + 1) - answered.T @ shares / sample.targets.size)


def value_squares(sample: Sequences, tokens: int) -> Float[np.ndarray, "output token"]:
    """Return the mean square of the sequences' contributions to `value_gradient`; `tokens` is N."""
    squares, plain = (sample.counts(tokens) / len(sample.tokens)) ** 2, 1 / (tokens + 1)
    of_answered = np.eye(tokens + 1)[sample.targets].T @ squares / sample.targets.size
    return np.asarray(squares.mean(axis=0) * plain**2 + (1 - 2 * plain) * of_answered)


def average(projections: Float[np.ndarray, "output token"], entry: Entry) -> float:
    """Return the mean of all projections that belong to one entry of Table 2, which have the same distribution."""
    places: dict[Token, slice] = {"noise": slice(-1, None), "trigger": slice(TRIGGER, TRIGGER + 1)}
    ordinary = slice(TRIGGER + 1, -1)
    rows = projections[places.get(entry[0], ordinary)]
    if entry[1] == "same":
        return float(np.diagonal(rows[:, ordinary]).mean())
    columns = rows[:, places.get(entry[1], ordinary)]
    if entry == ("other", "other"):
        return float((columns.sum() - np.trace(columns)) / (columns.size - len(columns)))
    return float(columns.mean())


def feedforward_moments(law: UniformRecall, output: Literal["noise", "other"]) -> Moments:
    """Return mu(k), sigma^2(k) and R(k) of Lemma D.1 exactly, for the noise token or a token of [N]."""
    chance = law.alpha if output == "noise" else (1 - law.alpha) / law.tokens
    return Moments(1 / (law.tokens + 1) - chance, chance * (1 - chance), max(chance, 1 - chance))


def value_moments(law: UniformRecall, entry: Entry) -> Moments:
    """Return mu(j, k), sigma^2(j, k) and R(j, k) of Lemma D.2 exactly, for any N and T.

    z_{T+1} = j implies y = j; if j is the noise token, it implies nothing about z_1 .. z_T.
    Errors: `SpecError` for what is not one of `ENTRIES`.
    """
    if entry not in ENTRIES:
        raise SpecError("entry", f"{entry} is no row of Table 2", "choose one of one_step.ENTRIES")
    output, token = entry
    kind, plain, every = _KINDS[token], 1 / (law.tokens + 1), law.moments
    chance, given = law.alpha, every
    if output != "noise":
        chance, given = (1 - law.alpha) / law.tokens, law.given(output == "trigger")
    # the contribution is (p - 1{y = j}) n_k / T with p = 1/(N+1): its mean is a part over all sequences minus a part
    # over sequences with target j, and in its square (p - 1{y = j})² = p² + (1 - 2 p) 1{y = j}
    own = OTHER_KIND if kind == OUTPUT_KIND else kind  # over all y, all tokens of [N] except q are alike
    mean = (every.mean[own] * plain - chance * given.mean[kind]) / law.length
    square = (every.square[own] * plain**2 + (1 - 2 * plain) * chance * given.square[kind]) / law.length**2
    # the largest deviation on either side: below the mean with target j and most tokens k, above it without target j
    most = law.most(own, True) / law.length
    most_given = law.most(kind, output != "other") / law.length
    reach = max(mean + (1 - plain) * most_given, plain * most - mean)
    return Moments(float(mean), float(square - mean**2), float(reach))


@dataclass(frozen=True)
class ClosedForm:
    """An entry of Table 2 to leading order for N, T >> 1: mean and variance as functions of (N, T, alpha) and as text.

    `reach` is the largest deviation from the mean, which tends to a constant.
    """

    mean: Callable[[float, float, float], float]
    mean_text: str
    variance: Callable[[float, float, float], float]
    variance_text: str
    reach: float


TABLE_2: dict[Entry, ClosedForm] = {
    ("noise", "noise"): ClosedForm(
        lambda n, t, a: -(a**2) / n, "-α²/N",
        lambda n, t, a: a**2 / (t * n) + (a**3 - a**4) / n**2, "α²/(TN) + (α³-α⁴)/N²", 0.5,
    ),
    ("noise", "trigger"): ClosedForm(
        lambda n, t, a: -a * (1 / n + 1 / t), "-α(1/N + 1/T)",
        lambda n, t, a: a / (t * n) + a * (1 - a) * (1 / n + 1 / t) ** 2, "α/(TN) + α(1-α)(1/N + 1/T)²", 1.0,
    ),
    ("noise", "other"): ClosedForm(
        lambda n, t, a: -a / n, "-α/N",
        lambda n, t, a: a / (t * n) + (a - a**2) / n**2, "α/(TN) + (α-α²)/N²", 1.0,
    ),
    ("trigger", "noise"): ClosedForm(
        lambda n, t, a: (2 * a - 1) / n**2, "(2α-1)/N²",
        lambda n, t, a: (1 - a) * (1 / (t * n**2) + 1 / n**3), "(1-α)(1/(TN²) + 1/N³)", 0.5,
    ),
    ("trigger", "trigger"): ClosedForm(
        lambda n, t, a: (2 * a - 1) / (a * n**2) + a / (t * n), "(2α-1)/(αN²) + α/(TN)",
        lambda n, t, a: (1 - a) / n * ((2 - a) / (a**2 * t * n) + (1 / (a * n) + 1 / t) ** 2),
        "(1-α)[(2-α)/(α²TN²) + (1/(αN) + 1/T)²/N]", 1.0,
    ),
    ("trigger", "other"): ClosedForm(
        lambda n, t, a: a / n**2, "α/N²",
        lambda n, t, a: (1 - a) * (1 / (t * n**2) + 1 / n**3), "(1-α)(1/(TN²) + 1/N³)", 1.0,
    ),
    ("other", "noise"): ClosedForm(
        lambda n, t, a: a**2 / n**2, "α²/N²",
        lambda n, t, a: (1 - a) * (a / (t * n**2) + a**2 / n**3), "(1-α)(α/(TN²) + α²/N³)", 0.5,
    ),
    ("other", "trigger"): ClosedForm(
        lambda n, t, a: a / n * (1 / n + 1 / t), "(α/N)(1/N + 1/T)",
        lambda n, t, a: (1 - a) * (1 / (t * n**2) + (1 / n + 1 / t) ** 2 / n), "(1-α)[1/(TN²) + (1/N + 1/T)²/N]", 0.5,
    ),
    ("other", "same"): ClosedForm(
        lambda n, t, a: (-1 + 3 * a - a**2) / n**2, "-(1-3α+α²)/N²",
        lambda n, t, a: (1 - a) * (2 - a) * (1 / (t * n**2) + (2 - a) / n**3),
        "(1-α)(2-α)/(TN²) + (1-α)(2-α)²/N³", 1.0,
    ),
    ("other", "other"): ClosedForm(
        lambda n, t, a: a / n**2, "α/N²",
        lambda n, t, a: (1 - a) * (1 / (t * n**2) + 1 / n**3), "(1-α)(1/(TN²) + 1/N³)", 1.0,
    ),
}  # fmt: skip
"""Our derivation of each entry; `table_2.PRINTED` has the formulas as the paper prints them."""
