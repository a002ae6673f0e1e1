"""The gradient of the key-query matrix after one step, measured on random sequences, and its figures and tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from anchorlab.findings import Line, LineFigure, Reference, Table, line
from anchorlab.rng import generator
from anchorlab.theory import PowerLaw
from anchorlab.theory.attention_gradient import (
    first_step,
    key_query_gradient,
    leading_order,
    measured_first_step,
    with_more_noise,
)
from anchorlab.theory.uniform_recall import UniformRecall

ALPHA, LEARNING_RATE = 0.5, 1.0
POWERS = {"W_F": 0, "W_V": -1, "W_KQ": -2, "trigger": -3, "other": -3}
"""The paper's powers in N: of each matrix's move, and of W_KQ's gradient towards the trigger and any other token."""

LABELS = {"noise": "noise token", "trigger": "trigger", "other": "every other token"}


@dataclass(frozen=True)
class Gradient:
    """Projections of -grad_KQ on W_E(k) W_E(q)ᵀ for each kind of token k: noise, trigger and any other."""

    law: UniformRecall
    noise: Float[np.ndarray, "batch"]
    trigger: Float[np.ndarray, "batch"]
    other: Float[np.ndarray, "batch"]

    def of(self, token: str) -> Float[np.ndarray, "batch"]:
        """Return the projections for a kind of token."""
        return {"noise": self.noise, "trigger": self.trigger, "other": self.other}[token]

    def drawn(self, token: str) -> Float[Tensor, "batch"]:
        """Return the projections for a kind of token as a tensor."""
        return torch.from_numpy(self.of(token))

    def mean(self, token: str) -> float:
        """Return the mean projection over batches."""
        return float(self.of(token).mean())

    def error(self, token: str) -> float:
        """Return the standard error of the mean."""
        values = self.of(token)
        return float(values.std(ddof=1) / sqrt(values.size))

    def derived(self, token: str) -> float:
        """Return the leading order of the projection for N, T ≫ 1."""
        return float(getattr(leading_order(self.law, LEARNING_RATE), token))


def measure(law: UniformRecall, batches: int, batch: int) -> Gradient:
    """Return the projections after the exact first step, in each of `batches` batches of `batch` sequences."""
    weights = first_step(law, LEARNING_RATE)
    found = np.zeros((batches, law.tokens + 1))
    for index in range(batches):
        random = generator(0, "attention gradient", law.tokens, law.length, index)
        for block in law.blocks(random, batch):
            found[index] += key_query_gradient(law, block, weights) * block.targets.size / batch
    return Gradient(law, found[:, -1], found[:, 0], found[:, 1:-1].mean(axis=1))


def measure_with_noise(law: UniformRecall, share: float, samples: int) -> float:
    """Return the projection on the noise when the noise also replaces other tokens, with probability `share` / N."""
    random = generator(0, "more noise", law.tokens, law.length, round(100 * share))
    found, first = 0.0, None
    for block in law.blocks(random, samples):
        more = with_more_noise(law, block, share / law.tokens, random)
        first = first or measured_first_step(law, more, LEARNING_RATE)
        found += key_query_gradient(law, more, first)[law.noise_token] * more.targets.size / samples
    return float(found)


def against_tokens(by_tokens: Sequence[Gradient], ratio: int) -> LineFigure:
    """Return the figure of the projections along N, at T = `ratio` N, with their leading orders."""
    tokens = [one.law.tokens for one in by_tokens]
    lines = []
    for token, sign in (("noise", -1), ("trigger", 1), ("other", 1)):
        drawn = sign * np.stack([one.of(token) for one in by_tokens], axis=1)
        derived = sign * np.array([[one.derived(token) for one in by_tokens]])
        for label, values in ((LABELS[token], drawn), (f"derived, {LABELS[token]}", derived)):
            shown = values.min(axis=0) > 0  # a logarithmic axis has no place below 0
            lines.append(line(label, np.array(tokens)[shown], values[:, shown]))
    title = "Gradient of W_KQ after the first step, against N"
    caption = (
        f"T = {ratio} N, α = {ALPHA:g}, η = {LEARNING_RATE:g}. Projection of the negative gradient on "
        "W_E(k) W_E(q)ᵀ, with the opposite sign for the noise token, the only one avoided; and the derived leading "
        "orders. Mean and range over independent batches."
    )
    return LineFigure(title, caption, "N, tokens", "projection, sign aside", tuple(lines), log_x=True, log_y=True)


def against_ratio(by_ratio: Sequence[Gradient]) -> LineFigure:
    """Return the figure of the projection on ordinary tokens along T/N, at one N."""
    tokens, lengths = by_ratio[0].law.tokens, [one.law.length / one.law.tokens for one in by_ratio]
    return LineFigure(
        title="Gradient of W_KQ towards ordinary tokens, against T/N",
        caption=f"N = {tokens}, α = {ALPHA:g}, η = {LEARNING_RATE:g}; times N³. The trigger ends every "
        "sequence, and draws attention to itself, at the cost of all others where T is not far above N. Mean "
        "and range over independent batches.",
        x_label="T/N",
        y_label="projection · N³",
        lines=(
            line(LABELS["other"], lengths, np.stack([one.other * tokens**3 for one in by_ratio], axis=1)),
            line("derived", lengths, [[one.derived("other") * tokens**3 for one in by_ratio]]),
        ),
        log_x=True,
        references=(Reference("no change", 0.0),),
    )


def speeds(moves: Mapping[str, Sequence[float]], by_tokens: Sequence[Gradient]) -> LineFigure:
    """Return the figure of how far each of the three matrices moves, along N."""
    tokens = tuple(float(one.law.tokens) for one in by_tokens)
    lines = tuple(Line(name, tokens, tuple(values)) for name, values in moves.items())
    caption = (
        "The move of each matrix in its leading direction, sign aside: W_F and W_V in the first step, towards "
        "the noise; W_KQ in the gradient after it, away from the noise."
    )
    return LineFigure("How fast the three matrices move", caption, "N, tokens", "move", lines, log_x=True, log_y=True)


def projection_table(measured: Sequence[Gradient]) -> Table:
    """Return the table of all projections, measured on random sequences and derived."""
    rows = [
        (one.law.tokens, one.law.length, LABELS[token], one.mean(token), one.error(token), one.derived(token))
        for one in measured
        for token in LABELS
    ]
    title = "Projections of W_KQ's negative gradient after the first step"
    caption = "On W_E(k) W_E(q)ᵀ for each kind of token k: drawn, its standard error, and the derived leading order."
    return Table(title, caption, ("N", "T", "k", "drawn", "standard error", "derived"), tuple(rows))


def power_table(powers: Mapping[str, PowerLaw | None]) -> Table:
    """Return the table of the powers in N; a power is None where not all values are positive."""
    names = {"W_KQ": "W_KQ, noise token", "trigger": "W_KQ, trigger", "other": "W_KQ, every other token"}
    rows = [
        (names.get(name, name), POWERS[name], None, "not of one sign")
        if found is None
        else (names.get(name, name), POWERS[name], found.slope, f"{found.low:.3f} to {found.high:.3f}")
        for name, found in powers.items()
    ]
    caption = "The slope on logarithmic axes at a fixed T/N, with its interval."
    return Table("Powers in N", caption, ("move", "paper", "power", "95 % interval"), tuple(rows))
