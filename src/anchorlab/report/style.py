"""The style of figures and pages. Colour-blind readers can tell the colours apart, on paper and on screen."""

from types import MappingProxyType
from typing import Any

INK, MUTED, GRID, RAISED, PAPER = "#1c2530", "#5d6875", "#e4e8ed", "#f6f8fa", "#fefefe"
LINES = ("#0072b2", "#c8500a", "#00856a", "#a8477f", "#a87400", "#3d8fd1", "#5b5b5b")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
SEQUENTIAL = ("#ffffff", "#d3e4f3", "#8dbbdf", "#3f86be", "#12507f", "#052a47")
POINTS = ("#5a3d9c", "#2c7fb4", "#2fa37f", "#d9a321")
SIGNED = ("#07395f", "#2f7fb8", "#a9cde6", "#ffffff", "#f5c09a", "#cc5b12", "#6d2600")

PAGE_COLOURS = MappingProxyType(
    {
        INK: "var(--ink)",
        MUTED: "var(--muted)",
        GRID: "var(--rule)",
        RAISED: "var(--raised)",
        PAPER: "var(--paper)",
        **{colour: f"var(--line-{index})" for index, colour in enumerate(LINES)},
    }
)
"""The CSS variable that replaces each colour of a drawing in a page, so that it follows the light or dark theme."""

DRAWING: MappingProxyType[Any, Any] = MappingProxyType(
    {
        "font.family": ["DejaVu Sans"],
        "font.size": 8.5,
        "text.color": INK,
        "axes.edgecolor": MUTED,
        "axes.labelcolor": INK,
        "axes.labelsize": 9,
        "axes.titlesize": 9,
        "axes.titlelocation": "left",
        "axes.linewidth": 0.7,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "grid.color": GRID,
        "grid.linewidth": 0.7,
        "xtick.color": MUTED,
        "ytick.color": MUTED,
        "xtick.labelcolor": INK,
        "ytick.labelcolor": INK,
        "xtick.labelsize": 8,
        "ytick.labelsize": 8,
        "xtick.major.size": 3,
        "ytick.major.size": 3,
        "xtick.major.width": 0.7,
        "ytick.major.width": 0.7,
        "lines.linewidth": 1.7,
        "lines.markersize": 4.2,
        "lines.markeredgewidth": 0,
        "lines.solid_capstyle": "round",
        "text.parse_math": False,  # a token may be a dollar sign
        "figure.dpi": 110,
        "savefig.dpi": 220,
        "svg.fonttype": "none",
        "svg.hashsalt": "anchorlab",
    }
)
"""matplotlib's settings for every figure: SVG keeps text as text, and the same figure gives the same bytes."""


def colour_and_marker(kind: int) -> tuple[str, str]:
    """Return the colour and marker of a kind of points, counted from 0; the first 49 kinds differ."""
    return LINES[kind % len(LINES)], MARKERS[(kind + kind // len(LINES)) % len(MARKERS)]
