"""Lemma D.1 and Table 2 of the truncated-weights paper: each entry as printed, as derived, and as drawn."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log, sqrt

import numpy as np

from anchorlab.findings import LineFigure, Reference, Table, line
from anchorlab.rng import generator
from anchorlab.theory import one_step
from anchorlab.theory.one_step import ENTRIES, TABLE_2, Entry, Moments
from anchorlab.theory.uniform_recall import UniformRecall

DELTA = 0.1
"""The probability that Lemmas D.1 and D.2 may fail, for the check of their bounds."""

_Formula = Callable[[float, float, float], float]


@dataclass(frozen=True)
class Printed:
    """An entry as read in the paper's text, as numbers from (N, T, alpha); None and … where it is not readable."""

    mean_text: str
    mean: _Formula | None
    variance_text: str
    variance: _Formula
    reach_text: str


_NOISE_ROW: _Formula = lambda n, t, a: a / (t * n) + (a - a**2) / n**2  # noqa: E731 - formulas stand side by side
_LIKE_OTHER: _Formula = lambda n, t, a: (2 - a) * (1 / (t * n**2) + 1 / n**3)  # noqa: E731
PRINTED: dict[Entry, Printed] = {
    ("noise", "noise"): Printed(
        "α²/N", lambda n, t, a: a**2 / n,
        "α²/(TN) + (α³-α⁴)/N²", lambda n, t, a: a**2 / (t * n) + (a**3 - a**4) / n**2, "1/2",
    ),
    ("noise", "trigger"): Printed("-α/N", lambda n, t, a: -a / n, "α/(TN) + (α-α²)/N²", _NOISE_ROW, "…"),
    ("noise", "other"): Printed("-α/N", lambda n, t, a: -a / n, "α/(TN) + (α-α²)/N²", _NOISE_ROW, "…"),
    ("trigger", "noise"): Printed(
        "(2α-1)/N²", lambda n, t, a: (2 * a - 1) / n**2,
        "1/(TN²) + (α²-α+1)/N³", lambda n, t, a: 1 / (t * n**2) + (a**2 - a + 1) / n**3, "1/2",
    ),
    ("trigger", "trigger"): Printed(
        "(2α-1)/(αN²)", lambda n, t, a: (2 * a - 1) / (a * n**2),
        "… + (α²-α+1)/(α²N³)", lambda n, t, a: (a**2 - a + 1) / (a**2 * n**3), "…",
    ),
    ("trigger", "other"): Printed("α/N²", lambda n, t, a: a / n**2, "(2-α)(1/(TN²) + 1/N³)", _LIKE_OTHER, "…"),
    ("other", "noise"): Printed(
        "α²/N²", lambda n, t, a: a**2 / n**2,
        "(2-α)(α/(TN²) + α²/N³)", lambda n, t, a: (2 - a) * (a / (t * n**2) + a**2 / n**3), "1/3",
    ),
    ("other", "trigger"): Printed("α/N²", lambda n, t, a: a / n**2, "(2-α)(1/(TN²) + 1/N³)", _LIKE_OTHER, "1/2"),
    ("other", "same"): Printed(
        "…/N²", None, "[1+(1-α)(2-α)]/(TN²) + [1+(1-α)(2-α)²]/N³",
        lambda n, t, a: (1 + (1 - a) * (2 - a)) / (t * n**2) + (1 + (1 - a) * (2 - a) ** 2) / n**3, "…",
    ),
    ("other", "other"): Printed("…/N²", None, "(2-α)(1/(TN²) + 1/N³)", _LIKE_OTHER, "…"),
}  # fmt: skip


@dataclass(frozen=True)
class Drawn:
    """Mean and variance of every entry over batches of draws `[entry batch]`, their exact moments beside them.

    The first two entries are those of Lemma D.1 (noise, a token of [N]), the others those of Table 2. `kept` is the
    share of batches in which every projection keeps within the bounds of the lemmas at `DELTA`.
    """

    law: UniformRecall
    exact: tuple[Moments, ...]
    means: np.ndarray
    variances: np.ndarray
    kept: float

    def scores(self, means: bool) -> np.ndarray:
        """How many standard errors of the drawn mean or variance lie between it and the exact one `[entry]`."""
        drawn = self.means if means else self.variances
        exact = np.array([one.mean if means else one.variance for one in self.exact])
        return np.asarray((drawn.mean(axis=1) - exact) / _error(drawn))


def _error(drawn: np.ndarray) -> np.ndarray:
    return np.asarray(drawn.std(axis=1, ddof=1) / sqrt(drawn.shape[1]))


def draw_moments(law: UniformRecall, batches: int, size: int) -> Drawn:
    """Draws the gradients of `size` sequences so many times."""
    feedforward = [one_step.feedforward_moments(law, "noise"), one_step.feedforward_moments(law, "other")]
    exact = (*feedforward, *(one_step.value_moments(law, entry) for entry in ENTRIES))
    means, variances, kept = [], [], 0
    for batch in range(batches):
        sample = law.draw(generator(0, "one step", "moments", batch), size)
        gradient = one_step.feedforward_gradient(sample, law.tokens)
        squares = _square_of_error(gradient, law)
        value, value_squares = one_step.value_gradient(sample, law.tokens), one_step.value_squares(sample, law.tokens)
        unbiased = size / (size - 1)
        spread, value_spread = unbiased * (squares - gradient**2), unbiased * (value_squares - value**2)
        means.append([gradient[-1], gradient[:-1].mean(), *(one_step.average(value, entry) for entry in ENTRIES)])
        variances.append([spread[-1], spread[:-1].mean(), *(one_step.average(value_spread, one) for one in ENTRIES)])
        kept += _keeps_bounds(law, exact, gradient, value, size)
    return Drawn(law, exact, np.array(means).T, np.array(variances).T, kept / batches)


def _square_of_error(gradient: np.ndarray, law: UniformRecall) -> np.ndarray:
    """The mean square of 1/(N+1) - 1{y = k}, from its mean: the indicator is its own square."""
    plain = 1 / (law.tokens + 1)
    return plain**2 + (1 - 2 * plain) * (plain - gradient)


def _keeps_bounds(
    law: UniformRecall, exact: Sequence[Moments], gradient: np.ndarray, value: np.ndarray, size: int
) -> bool:
    """Whether all projections lie within (10) and (16), with the exact moments."""

    def bound(moments: Moments, union: int) -> float:
        logarithm = union * log(law.tokens + 1) + log(2 / DELTA)
        return sqrt(4 * moments.variance * logarithm / size) + 4 * moments.reach * logarithm / size

    noise, other, *entries = exact
    kept = [
        abs(gradient[-1] - noise.mean) <= bound(noise, 1),
        np.abs(gradient[:-1] - other.mean).max() <= bound(other, 1),
    ]
    for entry, moments in zip(ENTRIES, entries, strict=True):
        outside = np.abs(value - moments.mean) > bound(moments, 2)
        kept.append(one_step.average(outside.astype(np.float64), entry) == 0)
    return bool(all(kept))


def verdict(printed: _Formula | None, derived: _Formula) -> str:
    """What the derivation says of a printed formula, for N >> 1 and T from far below N to far above."""
    if printed is None:
        return "not readable"
    tokens, agrees = 1e4, []
    for length in (1e2, 1e4, 1e8):
        ratios = np.array([printed(tokens, length, alpha) / derived(tokens, length, alpha) for alpha in (0.3, 0.6)])
        if np.abs(ratios + 1).max() < 0.01:
            return "confirmed but for the sign"
        agrees.append(bool(np.abs(ratios - 1).max() < 0.01))
    if all(agrees):
        return "confirmed"
    return "confirmed for T ≫ N" if agrees[-1] else "corrected"


def verdicts(means: bool) -> list[str]:
    """The verdict on every entry of Table 2."""
    if means:
        return [verdict(PRINTED[entry].mean, TABLE_2[entry].mean) for entry in ENTRIES]
    return [verdict(PRINTED[entry].variance, TABLE_2[entry].variance) for entry in ENTRIES]


def share_right(means: bool) -> float:
    """The share of Table 2's readable means or variances that the derivation confirms for T >> N, signs aside."""
    readable = [one for one in verdicts(means) if one != "not readable"]
    return sum(one.startswith("confirmed") for one in readable) / len(readable)


def table(drawn: Drawn, means: bool) -> Table:
    """Entry by entry: as printed, as derived, the exact number at this N and T, and the drawn one."""
    n, t, a = drawn.law.tokens, drawn.law.length, drawn.law.alpha
    values = drawn.means if means else drawn.variances
    numbers = zip(
        [one.mean if means else one.variance for one in drawn.exact],
        values.mean(axis=1).tolist(), _error(values).tolist(), drawn.scores(means).tolist(), strict=True,
    )  # fmt: skip
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
    rows = [(*texts[:3], *found, texts[3]) for texts, found in zip([*first, *rest], numbers, strict=True)]
    return Table(
        title=f"{'Means' if means else 'Variances'} of the projected gradients (Lemmas D.1 and D.2, Table 2)",
        caption=f"Of one sequence, for output j and input k; N = {n}, T = {t}, α = {a:g}. … is not readable in the "
        "text. Derived is the leading order for N, T ≫ 1, exact the number at this N and T; the verdict compares the "
        "two formulas.",
        columns=("j, k", "printed", "derived", "exact", "drawn", "standard error", "errors away", "verdict"),
        rows=tuple(rows),
    )


def reach_table(drawn: Drawn) -> Table:
    """The largest distance from the mean, R(j, k)."""
    rows = [
        (entry_text(entry), PRINTED[entry].reach_text, TABLE_2[entry].reach, moments.reach)
        for entry, moments in zip(ENTRIES, drawn.exact[2:], strict=True)
    ]
    return Table(
        title="Ranges R(j, k) of Lemma D.2 (Table 2)",
        caption="The largest distance of one sequence's contribution from the mean. … is not readable in the text.",
        columns=("j, k", "printed", "derived, N and T large", "exact"),
        rows=tuple(rows),
    )


def entry_text(entry: Entry) -> str:
    """`N+1, q` and so on, as in Table 2."""
    names = {"noise": "N+1", "trigger": "q", "other": "[N]∖q"}
    rows, columns = names[entry[0]], {**names, "same": "j", "other": "[N]∖{q, j}" if entry[0] == "other" else "[N]∖q"}
    return f"{rows}, {columns[entry[1]]}"


def figure(drawn: Drawn, means: bool) -> LineFigure:
    """Drawn and printed over exact, for every entry of Table 2."""
    law, places = drawn.law, list(range(1, len(ENTRIES) + 1))
    exact = np.array([one.mean if means else one.variance for one in drawn.exact[2:]])
    values = (drawn.means if means else drawn.variances)[2:]
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
        "formulas at the same N, T and α, where they are readable.",
        x_label="row of Table 2",
        y_label=f"over the exact {what[:-1]}",
        lines=(
            line("drawn", places, (values / exact[:, None]).T),
            line("printed", list(printed), [list(printed.values())]),
        ),
        references=(Reference("exact", 1.0),),
    )
