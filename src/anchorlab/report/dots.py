"""Draw points in panels that share one y axis."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from anchorlab.findings import DotFigure, Dots
from anchorlab.report.style import LINES, MUTED

_COLUMNS, _WIDTH, _HEIGHT = 4, 1.75, 1.6  # inches of a panel


def draw_dots(drawing: Drawing, figure: DotFigure, margin: float) -> None:
    """Draw up to four panels in a row: a point for each value, a line through the means, the marked tick in bold.

    `margin` is the height in inches to keep for the figure's title and provenance.
    """
    columns = min(len(figure.panels), _COLUMNS)
    rows = -(-len(figure.panels) // columns)
    drawing.set_size_inches(max(columns * _WIDTH + 0.6, 3.6), rows * (_HEIGHT + 0.35) + margin)
    grid: Any = drawing.subplots(rows, columns, squeeze=False, sharey=True)
    for axes in grid.flat[len(figure.panels) :]:
        axes.axis("off")
    for axes, panel in zip(grid.flat, figure.panels, strict=False):
        _draw(axes, panel)
    for axes in grid[:, 0]:
        axes.set_ylabel(figure.y_label)
    bottom, top = figure.y_range
    if bottom is not None and top is not None:
        room = 0.04 * (top - bottom)  # keeps points at the ends of the range from being clipped
        bottom, top = bottom - room, top + room
    grid[0, 0].set_ylim(bottom, top)


def _draw(axes: Axes, panel: Dots) -> None:
    axes.grid(axis="y")
    points = [(x, y) for x, row in enumerate(panel.values) for y in row if np.isfinite(y)]
    across, up = zip(*points, strict=True) if points else ((), ())
    axes.plot(across, up, "o", color=LINES[0], alpha=0.4, markersize=3.6)
    finite = [[y for y in row if np.isfinite(y)] for row in panel.values]
    means = [float(np.mean(row)) if row else np.nan for row in finite]
    axes.plot(range(len(means)), means, color=LINES[1], linewidth=1.3)
    axes.set_title(panel.title, pad=4)
    axes.tick_params(axis="x", labelsize=7)
    ticks = axes.set_xticks(range(len(panel.ticks)), panel.ticks)
    if panel.marked is not None:
        ticks[panel.marked].label1.set_fontweight("bold")
        axes.axvline(panel.marked, color=MUTED, linewidth=0.7, dashes=(4, 3), zorder=0)
    axes.margins(x=0.12)
