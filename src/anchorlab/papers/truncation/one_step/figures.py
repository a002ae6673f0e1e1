"""Figures and tables of one gradient step: Theorem 1's margins, and Table 2."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from anchorlab.findings import Line, LineFigure, Reference, Table, line, numbers
from anchorlab.studies.kit import curves_against
from anchorlab.theory.margin_scans import LOGITS, Scanned
from anchorlab.theory.one_step import ENTRIES, TABLE_2, Entry
from anchorlab.theory.table_2 import PRINTED, Drawn, verdicts
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
    """Return the figure of the margins' standard deviations along a scan, with the noise logits' exact ones."""
    lines = []
    for logit, label in LOGITS.items():
        found = [point.margins[logit] for point in scanned.points]
        lines.append(line(label, scanned.scan.values, [[one.deviation for one in found]]))
        lines.append(line(f"exact, {label}", scanned.scan.values, [[one.predicted for one in found]]))
    law, along = scanned.scan.law, scanned.scan.along
    regime = "" if along == "samples" else ", T ≫ N" if law.length > law.tokens else ", N ≫ T"
    return LineFigure(
        title=f"Spread of the margins against {_SYMBOLS[along]}{regime}",
        caption=f"{_setting(scanned)} Standard deviation over training sets, at learning rate 1, and beside each the "
        "exact one of the noise logit alone. One repeated token is the hardest test sequence.",
        x_label=_AXES[along],
        y_label="standard deviation",
        lines=tuple(Line(one.label, one.x, one.mean) for one in lines),
        log_x=True,
        log_y=True,
    )


def needed(laws: Sequence[UniformRecall], samples: Mapping[str, Sequence[float]]) -> LineFigure:
    """Return the figure of the samples needed for a margin within half of theory's value, against N."""
    tokens, lines = np.array([law.tokens for law in laws]), []
    for logit, label in LOGITS.items():
        known = np.isfinite(samples[logit])
        lines.append(Line(label, numbers(tokens[known]), numbers(np.array(samples[logit])[known])))
    return LineFigure(
        title="Samples for a margin within half of theory's value",
        caption=f"T = {laws[0].length}, α = {laws[0].alpha:g}. The fewest samples with which 95 % of the training sets "
        "give such a margin, by interpolation.",
        x_label=_AXES["tokens"],
        y_label="m, sequences",
        lines=tuple(lines),
        log_x=True,
        log_y=True,
    )


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


def moments_table(drawn: Drawn, means: bool) -> Table:
    """Return the table of all entries: as printed, as derived, the exact number at this N and T, and as sampled."""
    n, t, a = drawn.law.tokens, drawn.law.length, drawn.law.alpha
    columns = (drawn.expected(means), drawn.of(means).mean(axis=1), drawn.errors(means), drawn.scores(means))
    first = [
        ("D.1: N+1", "-α", "1/(N+1) - α", "confirmed"),
        ("D.1: [N]", "1/(N+1) - (1-α)/N", "1/(N+1) - (1-α)/N", "confirmed"),
    ] if means else [
        ("D.1: N+1", "α(1-α)", "α(1-α)", "confirmed"),
        ("D.1: [N]", "(1-α)/N", "(1-α)/N · (1 - (1-α)/N)", "confirmed"),
    ]  # fmt: skip
    rest = [
        (
            entry_text(entry),
            PRINTED[entry].mean_text if means else PRINTED[entry].variance_text,
            TABLE_2[entry].mean_text if means else TABLE_2[entry].variance_text,
            judged,
        )
        for entry, judged in zip(ENTRIES, verdicts(means), strict=True)
    ]
    found = zip(*(column.tolist() for column in columns), strict=True)
    rows = [(*texts[:3], *values, texts[3]) for texts, values in zip([*first, *rest], found, strict=True)]
    return Table(
        title=f"{'Means' if means else 'Variances'} of the projected gradients (Lemmas D.1 and D.2, Table 2)",
        caption=f"Of one sequence, for output j and input k; N = {n}, T = {t}, α = {a:g}. … is illegible in the "
        "available text. Derived is the leading order for N, T ≫ 1, exact the number at this N and T; the verdict "
        "compares the two formulas.",
        columns=("j, k", "printed", "derived", "exact", "drawn", "standard error", "errors away", "verdict"),
        rows=tuple(rows),
    )


def reach_table(drawn: Drawn) -> Table:
    """Return the table of the ranges R(j, k), the largest distances from the mean."""
    rows = [
        (entry_text(entry), PRINTED[entry].reach_text, TABLE_2[entry].reach, moments.reach)
        for entry, moments in zip(ENTRIES, drawn.exact[2:], strict=True)
    ]
    return Table(
        title="Ranges R(j, k) of Lemma D.2 (Table 2)",
        caption="The largest distance of one sequence's contribution from the mean. … is illegible in the available "
        "text.",
        columns=("j, k", "printed", "derived, N and T large", "exact"),
        rows=tuple(rows),
    )


def entry_text(entry: Entry) -> str:
    """Return an entry's indices as in Table 2, such as `N+1, q`."""
    names = {"noise": "N+1", "trigger": "q", "other": "[N]∖q"}
    rows, columns = names[entry[0]], {**names, "same": "j", "other": "[N]∖{q, j}" if entry[0] == "other" else "[N]∖q"}
    return f"{rows}, {columns[entry[1]]}"


def moments(drawn: Drawn, means: bool) -> LineFigure:
    """Return the figure of sampled and printed values divided by the exact ones, for every entry of Table 2."""
    law, places = drawn.law, list(range(1, len(ENTRIES) + 1))
    exact, values = drawn.expected(means)[2:], drawn.of(means)[2:]
    formulas = [PRINTED[entry].mean if means else PRINTED[entry].variance for entry in ENTRIES]
    printed = {
        place: one(law.tokens, law.length, law.alpha) / exact[place - 1]
        for place, one in zip(places, formulas, strict=True)
        if one is not None
    }
    what = "means" if means else "variances"
    return LineFigure(
        title=f"Table 2's {what}: drawn and printed over exact",
        caption="The rows of Table 2 in its order. Mean and range over independent batches of draws; the printed "
        "formulas at the same N, T and α, where they are legible.",
        x_label="row of Table 2",
        y_label=f"over the exact {what[:-1]}",
        lines=(
            line("drawn", places, (values / exact[:, None]).T),
            line("printed", list(printed), [list(printed.values())]),
        ),
        references=(Reference("exact", 1.0),),
    )
