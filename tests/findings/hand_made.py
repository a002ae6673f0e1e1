"""Findings made by hand with a figure of each kind."""

import numpy as np

from anchorlab.findings import (
    BarFigure,
    Bars,
    CircuitArrow,
    CircuitFigure,
    CircuitPanel,
    DotFigure,
    Dots,
    Findings,
    LineFigure,
    Map,
    MapFigure,
    Reference,
    Scatter,
    ScatterFigure,
    Table,
    TimelineFigure,
    event,
    grid,
    line,
)
from tests.report.hand_made_findings import PROVENANCE

CURVES = (line("a", [1, 2, 4], [[0.1, 0.2, 0.3], [0.2, 0.4, 0.5]]),)
LINES, SCATTERS, DOTS, BARS, TIMELINE, MAPS, CIRCUITS = range(7)
FIGURES = (
    LineFigure("t", "c", "x", "y", CURVES, True, True, (0.1, 1), (Reference("g", 0.1), Reference("h", 2.0, "x"))),
    ScatterFigure("t", "c", (Scatter("s", (1, 2), (3, 4), (1, 0)),), "x", "y", "v"),
    DotFigure("t", "c", (Dots("p", ("a", "b"), ((1, 2), (3,)), 0),), "y", (0, 1)),
    BarFigure("t", "c", ("g", "h"), (Bars("b", (0.1, 0.2), (0.05, 0.1), (0.2, 0.3)),), "y", (0.1, 0.1), "d", (0, 1)),
    TimelineFigure("t", "c", "step", (event("e", "g", [1, 2, float("nan")]),), 100.0, True),
    MapFigure("t", "c", ((Map("m", grid(np.eye(2)), ("a", "b"), ("a", "b"), "x", "y"),),), value_range=(0, 1)),
    CircuitFigure("t", "c", (CircuitPanel("p", ("k", "q"), 2, (CircuitArrow(1, 0, "q", "k", "0.5"),)),)),
)
TABLE = Table("t", "c", ("n", "v"), ((1, 0.5), (2, None)))
FINDINGS = Findings("a/b", "t", "s", "quick", PROVENANCE, figures=FIGURES, tables=(TABLE,))
