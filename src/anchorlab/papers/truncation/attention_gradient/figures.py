"""Figures and tables of the gradient of the key-query matrix after one step."""

from collections.abc import Mapping, Sequence

import numpy as np

from anchorlab.findings import Line, LineFigure, Reference, Table, line
from anchorlab.papers.truncation.attention_gradient.projections import ALPHA, LEARNING_RATE, POWERS, Gradient
from anchorlab.theory import PowerLaw

LABELS = {"noise": "noise token", "trigger": "trigger", "other": "every other token"}


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
    return LineFigure(
        title="Gradient of W_KQ after the first step, against N",
        caption=f"T = {ratio} N, α = {ALPHA:g}, η = {LEARNING_RATE:g}. Projection of the negative gradient on "
        "W_E(k) W_E(q)ᵀ, with the sign turned for the noise token, which alone is avoided; beside each its leading "
        "order. Mean and range over independent batches.",
        x_label="N, tokens",
        y_label="projection, sign aside",
        lines=tuple(lines),
        log_x=True,
        log_y=True,
    )


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
    return LineFigure(
        title="How fast the three matrices move",
        caption="The move of each matrix in its leading direction, sign aside: W_F and W_V in the first step, towards "
        "the noise; W_KQ in the gradient after it, away from the noise.",
        x_label="N, tokens",
        y_label="move",
        lines=tuple(Line(name, tokens, tuple(values)) for name, values in moves.items()),
        log_x=True,
        log_y=True,
    )


def projections(measured: Sequence[Gradient]) -> Table:
    """Return the table of all projections, measured on random sequences and derived."""
    rows = [
        (one.law.tokens, one.law.length, LABELS[token], one.mean(token), one.error(token), one.derived(token))
        for one in measured
        for token in LABELS
    ]
    return Table(
        title="Projections of W_KQ's negative gradient after the first step",
        caption="On W_E(k) W_E(q)ᵀ for each kind of token k: drawn, its standard error, and the derived leading order.",
        columns=("N", "T", "k", "drawn", "standard error", "derived"),
        rows=tuple(rows),
    )


def power_table(powers: Mapping[str, PowerLaw | None]) -> Table:
    """Return the table of the powers in N; None for values of both signs."""
    names = {"W_KQ": "W_KQ, noise token", "trigger": "W_KQ, trigger", "other": "W_KQ, every other token"}
    rows = [
        (names.get(name, name), POWERS[name], None, "not of one sign")
        if found is None
        else (names.get(name, name), POWERS[name], found.slope, f"{found.low:.3f} to {found.high:.3f}")
        for name, found in powers.items()
    ]
    return Table(
        title="Powers in N",
        caption="The slope on logarithmic axes at a fixed T/N, with its interval.",
        columns=("move", "paper", "power", "95 % interval"),
        rows=tuple(rows),
    )
