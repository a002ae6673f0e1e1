"""Findings made by hand with a figure of each kind."""

import numpy as np

from anchorlab import findings as of
from tests.report.hand_made_findings import PROVENANCE

CURVES = (of.line("a", [1, 2, 4], [[0.1, 0.2, 0.3], [0.2, 0.4, 0.5]]),)
LINES, SCATTERS, DOTS, BARS, TIMELINE, MAPS, CIRCUITS = range(7)
FIGURES = (
    of.LineFigure(
        "t", "c", "x", "y", CURVES, True, True, (0.1, 1), (of.Reference("g", 0.1), of.Reference("h", 2.0, "x"))
    ),
    of.ScatterFigure("t", "c", (of.Scatter("s", (1, 2), (3, 4), (1, 0)),), "x", "y", "v"),
    of.DotFigure("t", "c", (of.Dots("p", ("a", "b"), ((1, 2), (3,)), 0),), "y", (0, 1)),
    of.BarFigure(
        "t", "c", ("g", "h"), (of.Bars("b", (0.1, 0.2), (0.05, 0.1), (0.2, 0.3)),), "y", (0.1, 0.1), "d", (0, 1)
    ),
    of.TimelineFigure("t", "c", "step", (of.event("e", "g", [1, 2, float("nan")]),), 100.0, True),
    of.MapFigure("t", "c", ((of.Map("m", of.grid(np.eye(2)), ("a", "b"), ("a", "b"), "x", "y"),),), value_range=(0, 1)),
    of.CircuitFigure("t", "c", (of.CircuitPanel("p", ("k", "q"), 2, (of.CircuitArrow(1, 0, "q", "k", "0.5"),)),)),
)
TABLE = of.Table("t", "c", ("n", "v"), ((1, 0.5), (2, None)))
FINDINGS = of.Findings("a/b", "t", "s", "quick", PROVENANCE, figures=FIGURES, tables=(TABLE,))
