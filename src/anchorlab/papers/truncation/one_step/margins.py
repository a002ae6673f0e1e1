"""Figures and a table of Theorem 1's margins after one gradient step."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from anchorlab.findings import Line, LineFigure, Reference, Table, numbers
from anchorlab.studies.kit import curves_against
from anchorlab.theory.margin_scans import LOGITS, Scanned
from anchorlab.theory.uniform_recall import UniformRecall

_AXES = {"samples": "m, sequences in the training set", "tokens": "N, tokens", "length": "T, positions"}
_SYMBOLS = {axis: label[0] for axis, label in _AXES.items()}


def margins(scanned: Scanned) -> LineFigure:
    """Return the figure of the margins divided by Theorem 1's value, against m."""
    curves = {
        label: torch.from_numpy(np.stack([point.margins[logit].values.ravel() for point in scanned.points], 1))
        for logit, label in LOGITS.items()
        if logit != "repeated"
    }
    return curves_against(
        "Margins after one step, over theory's value (Theorem 1)",
        scanned.scan.values,
        curves,
        x_label=_AXES["samples"],
        y_label="margin over theory's value",
        caption=f"{_setting(scanned)} Noise logit minus the largest other one, over α for the feed-forward layer and "
        "over (α²q + α(1 - q))/N for the attention. Mean and range over training sets.",
        log_x=True,
        references=(Reference("theory", 1.0),),
    )


def spreads(scanned: Scanned) -> LineFigure:
    """Return the figure of the margins' standard deviations along a scan, with the exact ones of the noise logits."""
    lines, x = [], numbers(scanned.scan.values)
    for logit, label in LOGITS.items():
        found = [point.margins[logit] for point in scanned.points]
        lines.append(Line(label, x, numbers([one.deviation for one in found])))
        lines.append(Line(f"exact, {label}", x, numbers([one.predicted for one in found])))
    law, along = scanned.scan.law, scanned.scan.along
    regime = "" if along == "samples" else ", T ≫ N" if law.length > law.tokens else ", N ≫ T"
    title = f"Spread of the margins against {_SYMBOLS[along]}{regime}"
    caption = (
        f"{_setting(scanned)} Standard deviation over training sets, at learning rate 1, and the exact "
        "standard deviation of each noise logit alone. One repeated token is the hardest test sequence."
    )
    return LineFigure(title, caption, _AXES[along], "standard deviation", tuple(lines), log_x=True, log_y=True)


def needed(laws: Sequence[UniformRecall], samples: Mapping[str, Sequence[float]]) -> LineFigure:
    """Return the figure of the samples needed for a margin within half of theory's value, against N."""
    tokens, lines = np.array([law.tokens for law in laws]), []
    for logit, label in LOGITS.items():
        known = np.isfinite(samples[logit])
        lines.append(Line(label, numbers(tokens[known]), numbers(np.array(samples[logit])[known])))
    title = "Samples for a margin within half of theory's value"
    caption = (
        f"T = {laws[0].length}, α = {laws[0].alpha:g}. The fewest samples with which 95 % of the training sets "
        "give such a margin, by interpolation."
    )
    return LineFigure(title, caption, _AXES["tokens"], "m, sequences", tuple(lines), log_x=True, log_y=True)


def powers(all_scanned: Sequence[Scanned]) -> Table:
    """Return the table of the powers of the margins' standard deviations along every scan."""
    rows = []
    for scanned in all_scanned:
        for logit, label in LOGITS.items():
            fitted = scanned.power(logit)
            interval = f"{fitted.low:.3f} to {fitted.high:.3f}"
            rows.append((_setting(scanned), label, fitted.slope, interval, scanned.predicted_power(logit)))
    return Table(
        title="Powers of the margins' spread",
        caption="The slope of the standard deviation on logarithmic axes; exact is the same for the exact standard "
        "deviation of the noise logit alone, at the same points.",
        columns=("setting", "margin", "power", "95 % interval", "exact"),
        rows=tuple(rows),
    )


def _setting(scanned: Scanned) -> str:
    """Return what is fixed and what varies, in words."""
    scan, law = scanned.scan, scanned.scan.law
    fixed = {"tokens": f"N = {law.tokens}", "length": f"T = {law.length}", "samples": f"m = {scan.samples}"}
    fixed[scan.along] = f"{_SYMBOLS[scan.along]} from {scan.values[0]} to {scan.values[-1]}"
    return ", ".join([*fixed.values(), f"α = {law.alpha:g}."])
