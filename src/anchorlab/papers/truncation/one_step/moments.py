"""Figures and tables of the projected gradients: Lemmas D.1 and D.2, and Table 2."""

from anchorlab.findings import LineFigure, Reference, Table, line
from anchorlab.studies.kit import column_table
from anchorlab.theory.one_step import ENTRIES, TABLE_2, Entry
from anchorlab.theory.table_2 import LEMMA_D1, PRINTED, Drawn, lemma_verdicts, verdicts


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


def moments_table(drawn: Drawn, means: bool) -> Table:
    """Return the table of all entries: as printed, as derived, the exact number at this N and T, and as sampled."""
    n, t, a = drawn.law.tokens, drawn.law.length, drawn.law.alpha
    derived = ("1/(N+1) - α", "1/(N+1) - (1-α)/N") if means else ("α(1-α)", "(1-α)/N · (1 - (1-α)/N)")  # of Lemma D.1
    printed = [*LEMMA_D1.values(), *(PRINTED[entry] for entry in ENTRIES)]
    exact = [TABLE_2[entry] for entry in ENTRIES]
    return column_table(
        f"{'Means' if means else 'Variances'} of the projected gradients (Lemmas D.1 and D.2, Table 2)",
        f"Of one sequence, for output j and input k; N = {n}, T = {t}, α = {a:g}. … is illegible in the "
        "available text. Derived is the leading order for N, T ≫ 1, exact the number at this N and T; the verdict "
        "compares the two formulas.",
        {
            "j, k": ["D.1: N+1", "D.1: [N]", *map(entry_text, ENTRIES)],
            "printed": [one.mean_text if means else one.variance_text for one in printed],
            "derived": [*derived, *(one.mean_text if means else one.variance_text for one in exact)],
            "exact": drawn.expected(means),
            "drawn": drawn.of(means).mean(axis=1),
            "standard error": drawn.errors(means),
            "errors away": drawn.scores(means),
            "verdict": [*lemma_verdicts(means), *verdicts(means)],
        },
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
